"""``--json`` of commands on a data directory: one document a line on stdout, and nothing for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from catalog.store.database.tables import SCHEMA_REVISION
from service.config.data_dir import open_data_dir
from service.recovery.opening import open_catalog
from tests.service.recovery.lives import a_life
from tests.sluice_run import Command


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory without a batch."""
    open_catalog(open_data_dir(tmp_path / "data")).close()
    return tmp_path / "data"


def told(sluice: Command, *words: str | Path) -> list[dict[str, Any]]:
    done = sluice(*words, "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_keys_are_told_as_documents(sluice: Command, data: Path) -> None:
    where = ("--data-dir", data)
    (made,) = told(sluice, "key", "create", "ann", "--scope", "read:a_*", "--scope", "ingest", *where)
    assert made.pop("key").startswith("sluice_")
    assert made == {"name": "ann", "scopes": ["read:a_*", "ingest"], "rate_per_s": 1000}
    assert told(sluice, "key", "list", *where) == [made]
    assert told(sluice, "key", "revoke", "ann", *where) == [{"name": "ann", "revoked": True}]
    assert told(sluice, "key", "list", *where) == []


def test_the_schema_is_told_before_and_after(sluice: Command, data: Path) -> None:
    assert told(sluice, "catalog", "check", "--data-dir", data) == [{"schema": SCHEMA_REVISION}]
    upgraded = {"schema": SCHEMA_REVISION, "schema_before": SCHEMA_REVISION}
    assert told(sluice, "catalog", "upgrade", "--data-dir", data) == [upgraded]


def test_a_backup_is_made_and_restored(sluice: Command, tmp_path: Path) -> None:
    with a_life(tmp_path / "data", batches=2):
        pass
    (made,) = told(sluice, "backup", tmp_path / "backup", "--data-dir", tmp_path / "data")
    assert made["batch"] == 1
    assert made["files"] > 0 < made["bytes"]
    (restored,) = told(sluice, "restore", tmp_path / "backup", "--data-dir", tmp_path / "new")
    assert restored == {
        "backup": str(tmp_path / "backup"),
        "data_dir": str(tmp_path / "new"),
        "batch": 1,
        "files": restored["files"],
    }
    # The job of this life was none of Spark's, whose metadata a start would miss.
    (found,) = told(sluice, "repair", tmp_path / "new")
    assert found.keys() == {"wrong", "repair", "repaired"}
    assert "is missing" in found["wrong"]
    assert found["repaired"] is False


def test_a_move_is_told_with_the_settings_that_it_goes_on_with(
    sluice: Command, data: Path, tmp_path: Path
) -> None:
    url = f"file://{tmp_path / 'mount'}"
    (moved,) = told(sluice, "move", tmp_path / "new", "--data-dir", data, "--to", url, "--buckets", "8")
    assert moved == {
        "from": str(data),
        "to": str(tmp_path / "new"),
        "storage_url": url,
        "catalog_url": None,
        "batch": -1,
        "buckets": 8,
        "files": 0,
        "state_rows": 0,
    }

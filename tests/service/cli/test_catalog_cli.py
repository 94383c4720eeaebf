"""``sluice catalog check|upgrade``: tables are looked at and migrated without a service."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from catalog.migrations import configuration
from catalog.store.database.tables import SCHEMA_REVISION
from catalog.store.store import Store
from tests.sluice_run import Command


@pytest.fixture
def url(either_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of a catalog on either database, which commands find by their settings."""
    monkeypatch.setenv("SLUICE_CATALOG_URL", either_url)
    return either_url


def execute(url: str, statement: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(statement)
    engine.dispose()


def migrate_to(url: str, revision: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        alembic = configuration()
        alembic.attributes["connection"] = connection
        command.upgrade(alembic, revision)
    engine.dispose()


def test_an_older_catalog_is_refused_and_upgraded_once(sluice: Command, url: str) -> None:
    migrate_to(url, "0014")

    refused = sluice("catalog", "check")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f'catalog has schema "0014", this version of Sluice needs "{SCHEMA_REVISION}"' in refused.stderr
    assert "sluice catalog upgrade" in refused.stderr

    assert (
        sluice("catalog", "upgrade").stdout == f'catalog upgraded from schema "0014" to "{SCHEMA_REVISION}"\n'
    )
    assert sluice("catalog", "upgrade").stdout == f'catalog has schema "{SCHEMA_REVISION}" already\n'
    checked = sluice("catalog", "check")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout == f'catalog has schema "{SCHEMA_REVISION}", which this version of Sluice needs\n'


def test_a_later_catalog_is_left_alone(sluice: Command, url: str) -> None:
    Store.open(url).close()
    execute(url, "UPDATE alembic_version SET version_num = '9999'")
    for action in ("check", "upgrade"):
        refused = sluice("catalog", action)
        assert refused.returncode == 1
        assert 'catalog has schema "9999"' in refused.stderr
        assert "or a newer one" in refused.stderr


def test_tables_that_were_changed_by_hand_are_named(sluice: Command, url: str) -> None:
    Store.open(url).close()
    execute(url, "CREATE TABLE of_somebody_else (id INTEGER)")
    assert sluice("catalog", "check").returncode == 0
    execute(url, "ALTER TABLE queries DROP COLUMN pause_reason")

    for action in ("check", "upgrade"):
        refused = sluice("catalog", action)
        assert refused.returncode == 1
        assert "add_column pause_reason" in refused.stderr
        assert "by hand" in refused.stderr


@pytest.mark.parametrize("action", ["check", "upgrade"])
def test_a_directory_without_a_catalog_stays_without(sluice: Command, action: str, tmp_path: Path) -> None:
    refused = sluice("catalog", action, "--data-dir", tmp_path)
    assert refused.returncode == 1
    assert f"There is no file {tmp_path}/catalog.db." in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_empty_database_of_a_server_gets_its_tables(
    sluice: Command, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_CATALOG_URL", postgres_url)
    upgraded = sluice("catalog", "upgrade")
    assert upgraded.stdout == f'catalog upgraded from schema "none" to "{SCHEMA_REVISION}"\n'
    assert sluice("catalog", "check").returncode == 0

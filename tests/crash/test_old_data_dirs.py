"""Data directories of older versions are migrated and gone on with: nothing is lost or comes twice."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from catalog.store.database.tables import SCHEMA_REVISION
from service.config.data_dir import open_data_dir
from service.recovery.opening import open_catalog
from service.results.results import ResultReader
from tests.api.running_service import RunningService, free_port
from tests.archives import unpack_archive
from tests.crash.old_data_dir import (
    KEPT,
    LATE,
    MADE_AT,
    QUERIES,
    ROWS,
    eventually,
    expected,
    give,
    input_rows,
    results,
)

#: Archives by the schema of their catalog.
ARCHIVES = sorted(path.name.partition(".")[0] for path in KEPT.glob("*.tar.xz"))


def unpack(schema: str, into: Path) -> tuple[Path, dict[str, str]]:
    """Unpack a data directory, and tell its catalog where it is now; return it with its facts."""
    unpack_archive(KEPT / f"{schema}.tar.xz", into)
    directory = into / "data"
    with closing(sqlite3.connect(directory / "catalog.db")) as catalog, catalog:
        tables = catalog.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for _, column, kind, *_ in catalog.execute(f'PRAGMA table_info("{table}")').fetchall():
                if kind == "TEXT":
                    text = f'UPDATE "{table}" SET "{column}" = replace("{column}", ?, ?)'
                    catalog.execute(text, (MADE_AT, str(directory)))
    return directory, json.loads((directory / "facts.json").read_text())


def exported(directory: Path) -> list[tuple[int, int]]:
    """Return what the sink of "files" has got, sorted."""
    rows = [
        json.loads(line)
        for path in (directory / "exports" / "files").glob("*.ndjson")
        for line in path.read_text().splitlines()
    ]
    return sorted((row["a"], row["b"]) for row in rows)


def test_there_is_one_and_none_is_of_a_later_schema() -> None:
    assert ARCHIVES, "make one: python -m tests.crash.old_data_dir"
    assert ARCHIVES[-1] <= SCHEMA_REVISION


@pytest.mark.parametrize("schema", ARCHIVES)
def test_results_of_an_old_directory_are_read_without_spark(schema: str, tmp_path: Path) -> None:
    directory, facts = unpack(schema, tmp_path)
    data_dir = open_data_dir(directory)
    wanted = expected(2)
    with open_catalog(data_dir) as store, closing(ResultReader(store, data_dir.results)) as reader:
        for name in QUERIES:
            page = reader.page(store.queries.newest(name).series, None, 10_000)
            found = zip(page.table["a"].to_pylist(), page.table["b"].to_pylist(), strict=True)
            assert sorted(found) == wanted[name], name
        series = store.queries.newest("files").series
        assert reader.page_if_any(series, facts["cursor"], 10) is None, "the cursor was at the end"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize("schema", ARCHIVES)
def test_an_old_directory_is_gone_on_with(schema: str, tmp_path: Path) -> None:
    directory, facts = unpack(schema, tmp_path)
    before, wanted = expected(2), expected(3)
    key = facts.get("key")  # 0012 is of a version that had no keys
    service = RunningService(
        directory,
        tmp_path / "log.txt",
        free_port(),
        headers={"Authorization": f"Bearer {key}"} if key else None,
        settings={"SLUICE_REQUIRE_KEYS": "1"} if key else {},
    )
    with service:
        assert service.http.get("/queries", headers={"Authorization": "Bearer sluice_x"}).status_code == 401
        for name in QUERIES:
            assert sorted(results(service, name)[0]) == before[name], name
        assert exported(directory) == before["files"]
        paused = service.ok("GET", "/queries/paused", 200)
        assert paused["desired"] == "paused"
        service.ok("POST", "/queries/paused:resume?wait=60", 200)
        receipt = service.ok("POST", "/streams/E/events", 202, json=[LATE])
        assert receipt["first_offset"] == 2 * ROWS + 1, "offsets go on without a gap"
        give(service, 2)
        rows = input_rows(3) + 1
        eventually(
            f"{rows} rows", lambda: service.ok("GET", "/statistics", 200)["input_rows"] >= rows, service
        )
        for name in QUERIES:
            assert sorted(results(service, name)[0]) == wanted[name], name
        new = results(service, "files", facts["cursor"])[0]
        assert sorted(before["files"] + new) == wanted["files"], "a cursor goes on where it was"
        eventually("the sink", lambda: exported(directory) == wanted["files"], service)
        assert service.ok("GET", "/statistics", 200)["input_rows"] == rows

"""Bad files of a running service: read once they are corrected, by streams that continue and that stop."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.api.running_service import WAIT_S, RunningService, free_port
from tests.api.test_poison import awaited

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def put(directory: Path, name: str, *keys: object) -> None:
    """Move a file to its place once it is complete."""
    rows = [f"2024-05-01T08:00:0{n}Z,{key}" for n, key in enumerate(keys)]
    (directory / f".{name}").write_text("\n".join(["ts,k", *rows]) + "\n")
    os.rename(directory / f".{name}", directory / name)


def test_corrected_files_are_read(tmp_path: Path) -> None:
    with RunningService(tmp_path / "data", tmp_path / "log.txt", free_port()) as service:
        for name, on_error in (("A", "stop"), ("B", "set-aside")):
            (tmp_path / name).mkdir()
            source = {"type": "files", "format": "csv", "path": str(tmp_path / name)}
            body = {
                "name": name,
                "columns": {"ts": "timestamp", "k": "bigint"},
                "event_time": "ts",
                "lateness": "1 min",
            }
            service.ok("POST", "/streams", 201, json=body | {"on_error": on_error, "source": source})
        cql = "SELECT A.k FROM A [RANGE 1 HOUR], B [RANGE 1 HOUR] WHERE A.k = B.k"
        service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "q", "cql": cql})

        def keys() -> list[Any]:
            return sorted(row["k"] for row in service.ok("GET", "/queries/q/results", 200)["rows"])

        put(tmp_path / "A", "1.csv", 1, 2)
        put(tmp_path / "B", "1.csv", 1)
        assert awaited(keys, bool, WAIT_S) == [1]
        put(tmp_path / "B", "2.csv", "two")

        def aside() -> Any:
            return service.ok("GET", "/statistics", 200)["streams"][1]["files_set_aside"]

        assert awaited(aside, bool, WAIT_S) == 1
        put(tmp_path / "B", "2.csv", 2)
        service.ok("POST", "/streams/B/files:retry", 202)
        assert awaited(keys, lambda found: len(found) > 1, WAIT_S) == [1, 2]
        assert aside() == 0

        put(tmp_path / "A", "2.csv", 1, "two")
        stopped = awaited(
            lambda: service.ok("GET", "/statistics", 200)["streams"][0]["warnings"], bool, WAIT_S
        )
        assert stopped[0].startswith(f'stream "A" has stopped at file "{tmp_path / "A" / "2.csv"}": row 2 (')
        put(tmp_path / "B", "3.csv", 2)
        assert awaited(keys, lambda found: len(found) > 2, WAIT_S) == [1, 2, 2], "the other stream goes on"
        put(tmp_path / "A", "2.csv", 1)
        service.ok("POST", "/streams/A/files:retry", 202)
        assert awaited(keys, lambda found: len(found) > 3, WAIT_S) == [1, 1, 2, 2]
        assert service.ok("GET", "/statistics", 200)["streams"][0]["warnings"] == []

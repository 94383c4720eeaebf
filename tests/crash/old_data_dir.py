"""A data directory as a service of one version leaves it, kept so that every later version opens it.

    python -m tests.crash.old_data_dir        writes tests/crash/old_data_dirs/<schema of the catalog>.tar.xz

Streams of every kind of source, and queries that ran from the first batch on, were updated, paused, removed
and added later, one with a sink. Rows come in parts, with a minute and a half of event time between the first
and the second, so that no pair crosses the changes of queries that are made between them:

    part 0   | paused, removed, updated |   part 1   | kept in the tree |   part 2, by a later version

Rows and queries are those of this module, so an archive stays useful as long as they are not changed.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from catalog.store.database.tables import SCHEMA_REVISION
from catalog.store.store import Store
from catalog.values.stream import GeneratorSource
from service.access.api_keys import create_key
from service.inputs.sources.generated.generator import chunks_available, generate
from tests.api.running_service import WAIT_S, RunningService, free_port
from tests.waiting import until

#: Where archives are.
KEPT = Path(__file__).parent / "old_data_dirs"
#: Where the one of an archive was when it was made: the catalog has the paths of files.
MADE_AT = "/tmp/sluice-old-data-dir/data"

PARTS, ROWS, KEYS = 3, 40, 6
SECOND_US = 1_000_000
STEP_US = SECOND_US // 20
#: Event times at which parts begin; the third follows the second without a gap.
BEGIN_US = (0, 100 * SECOND_US, 100 * SECOND_US + ROWS * STEP_US)
#: One posted event comes when its time is long past.
LATE = {"ts": 50 * SECOND_US, "id": 9_999, "k": 0}

FILES = {"P": "parquet", "C": "csv", "J": "jsonl"}
COLUMNS = {"ts": "timestamp", "id": "bigint", "k": "bigint"}
#: Streams of each query, its window (seconds), and its filter.
QUERIES = {
    "files": ("P", "C", 2, ""),
    "updated": ("J", "E", 1, ""),
    "paused": ("P", "C", 1, ""),
    "removed": ("P", "C", 2, " AND P.k < 4"),
    "added": ("E", "G", 2, ""),
}
#: Window of "updated" from the changes on, seconds.
UPDATED_S = 2
SINK = {"type": "files", "format": "ndjson", "path": "files"}

_SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("id", pa.int64()), ("k", pa.int64())])
#: What is of one run, and nobody needs.
_LEFT_OUT = ("engine.lock", "spark.log", "spill", "spark.log.1", "spark")


def rows_of(stream: str, part: int) -> pa.Table:
    """Return the rows of a part of a stream that is not generated, in order of their times."""
    draws = np.random.default_rng((ord(stream), part))
    return pa.table(
        {
            "ts": pa.array(BEGIN_US[part] + STEP_US * np.arange(ROWS)).view(pa.timestamp("us")),
            "id": np.arange(part * ROWS, (part + 1) * ROWS),
            "k": draws.integers(0, KEYS, ROWS),
        },
        schema=_SCHEMA,
    )


def events_of(part: int) -> list[dict[str, int]]:
    """Return the posted events of a part."""
    table = rows_of("E", part)
    columns = (table["ts"].cast(pa.int64()), table["id"], table["k"])
    return [
        dict(zip(_SCHEMA.names, row, strict=True))
        for row in zip(*(c.to_pylist() for c in columns), strict=True)
    ]


def give(service: RunningService, part: int) -> None:
    """Write the files of a part, and post its events."""
    for stream, form in FILES.items():
        directory = service.data_dir / "sources" / stream
        path, table = directory / f".{part}.{form}", rows_of(stream, part)
        if form == "parquet":
            pq.write_table(table, path)
        elif form == "csv":
            pa_csv.write_csv(table, path)
        else:
            texts = table.set_column(0, "ts", table["ts"].cast(pa.string())).to_pylist()
            path.write_text("".join(json.dumps(row) + "\n" for row in texts))
        # An archive keeps times of files by the second.
        os.utime(path, (1_700_000_000 + part, 1_700_000_000 + part))
        path.rename(directory / f"{part}.{form}")
    service.ok("POST", "/streams/E/events", 202, json=events_of(part))


def eventually(what: str, holds: Callable[[], bool], service: RunningService) -> None:
    """Wait until something holds."""
    until(holds, lambda: f"{what}\n{service.log.read_text()[-4000:]}")


def results(service: RunningService, query: str, after: str = "") -> tuple[list[tuple[int, int]], str]:
    """Return the results of a query behind a cursor, as pairs of ids, and the cursor at their end."""
    page = service.ok("GET", f"/queries/{query}/results?limit=10000{after and f'&after={after}'}", 200)
    assert not page["has_more"]
    return [(row["a"], row["b"]) for row in page["rows"]], page["next_cursor"]


def expected(parts: int) -> dict[str, list[tuple[int, int]]]:
    """Return what the first parts give each query, sorted: "paused" rests while part 1 is read."""
    with duckdb.connect() as db:
        for stream in (*FILES, "E"):
            tables = [
                rows_of(stream, part).append_column("part", pa.array([part] * ROWS)) for part in range(parts)
            ]
            db.register(stream, pa.concat_tables(tables))
        db.register("G", generated().append_column("part", pa.array([1] * generated().num_rows)))
        found = {}
        for name, (a, b, window_s, _) in QUERIES.items():
            window = f"{window_s * SECOND_US}"
            where = {
                "removed": "a.part = 0 AND b.part = 0 AND a.k < 4",
                "paused": "(a.part = 0 AND b.part = 0 OR greatest(a.part, b.part) = 2)",
            }.get(name, "true")
            if name == "updated":
                window = f"CASE a.part WHEN 0 THEN {window} ELSE {UPDATED_S * SECOND_US} END"
            found[name] = db.sql(
                f"SELECT a.id, b.id FROM {a} a JOIN {b} b ON a.k = b.k "
                f"WHERE abs(epoch_us(a.ts) - epoch_us(b.ts)) < {window} AND {where} ORDER BY ALL"
            ).fetchall()
    assert all(found[name] for name in QUERIES), "each query has results"
    return found


def generated() -> pa.Table:
    """Return the rows of the stream that is generated."""
    from service.documents.streams.stream_document import StreamDocument

    stream = StreamDocument.model_validate(_streams()["G"]).to_stream()
    assert isinstance(stream.source, GeneratorSource)
    chunks = chunks_available(stream.source, 0)
    return generate(stream, stream.source, 0, chunks, ("ts", "id", "k")).select(_SCHEMA.names)


def input_rows(parts: int) -> int:
    """Return how many rows the batches of the first parts read, the late one included."""
    return (len(FILES) + 1) * ROWS * parts + ((generated().num_rows + 1) if parts > 1 else 0)


def _streams() -> dict[str, dict[str, Any]]:
    common = {"columns": COLUMNS, "event_time": "ts", "lateness": "5s"}
    sources: dict[str, dict[str, Any]] = {
        name: {"type": "files", "format": form, "path": name} for name, form in FILES.items()
    }
    sources["E"] = {"type": "http"}
    sources["G"] = {
        "type": "generator",
        "rate_per_s": 20,
        "rows": 60,
        "seed": 7,
        "start": "1970-01-01T00:01:40Z",
        "columns": {"id": {"distribution": "sequence"}, "k": {"low": 0, "high": KEYS}},
    }
    return {name: {"name": name, "source": source} | common for name, source in sources.items()}


def make(directory: Path) -> dict[str, str]:
    """Let a service make a data directory; return the key of its client, and a cursor of "files"."""
    for name in FILES:
        (directory / "sources" / name).mkdir(parents=True)
    log = directory.with_name("log.txt")
    with RunningService(directory, log, free_port(), settings={}) as service:
        for stream in _streams().values():
            service.ok("POST", "/streams", 201, json=stream)
        for name, (a, b, window_s, where) in QUERIES.items():
            if name != "added":
                _add(service, name, f"{window_s} SECONDS", a, b, where)
        give(service, 0)
        _settle(service, 1)
        service.ok("PATCH", "/queries/updated", 202, json={"window": f"{UPDATED_S}s"})
        service.ok("POST", "/queries/paused:pause", 202)
        service.ok("DELETE", "/queries/removed", 202)
        a, b, window_s, where = QUERIES["added"]
        _add(service, "added", f"{window_s} SECONDS", a, b, where)
        give(service, 1)
        _settle(service, 2, but=1)
        service.ok("POST", "/streams/E/events", 202, json=[LATE])
        _settle(service, 2)
        wanted = expected(2)
        for name in QUERIES:
            assert sorted(results(service, name)[0]) == wanted[name], name
        cursor = results(service, "files")[1]
        assert service.stop() == 0
    with Store.open(f"sqlite:///{directory / 'catalog.db'}") as store:
        key = create_key(store.api_keys, "client", ("read", "ingest", "write"))
    return {"key": key, "cursor": cursor}


def _add(service: RunningService, name: str, window: str, a: str, b: str, where: str) -> None:
    streams = f"{a} [RANGE {window}], {b} [RANGE {window}]"
    cql = f"SELECT {a}.id AS a, {b}.id AS b FROM {streams} WHERE {a}.k = {b}.k{where}"
    body = {"name": name, "cql": cql} | ({"sink": SINK} if name == "files" else {})
    service.ok("POST", f"/queries?wait={WAIT_S}", 201, json=body)


def _settle(service: RunningService, parts: int, but: int = 0) -> None:
    """Wait until the rows of the first parts are in committed batches, but for the late one."""
    wanted = input_rows(parts) - but
    eventually(
        f"{wanted} rows", lambda: service.ok("GET", "/statistics", 200)["input_rows"] == wanted, service
    )


def main() -> None:
    """Make the directory of this version, and pack it."""
    directory = Path(MADE_AT)
    shutil.rmtree(directory.parent, ignore_errors=True)
    directory.parent.mkdir()
    facts = make(directory)
    (directory / "facts.json").write_text(json.dumps(facts))
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"{SCHEMA_REVISION}.tar.xz"

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if member.name.partition("/")[2].split("/")[0] in _LEFT_OUT:
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = int(member.mtime)
        return member

    with tarfile.open(path, "w:xz") as archive:
        archive.add(directory, "data", filter=plain)
    shutil.rmtree(directory.parent)
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()

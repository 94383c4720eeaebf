"""Streams and queries come and go in a running service, over HTTP, while one Spark query runs on."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.api.running_service import WAIT_S, RunningService, free_port, serve_command
from tests.sluice_run import Command

pytestmark = pytest.mark.spark

CLICKS = {"ts": "timestamp", "k": "bigint", "v": "double", "price": "decimal(10,2)"}
VIEWS = {"ts": "timestamp", "k": "bigint", "page": "string"}
JOIN = "FROM {a} [RANGE 10 SECONDS] a, {b} [RANGE 10 SECONDS] b WHERE a.k = b.k"


def at(second: float) -> str:
    """Event time, in seconds after a fixed start."""
    return f"2026-01-01T00:00:{second:09.6f}Z"


def put_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let a file appear whole, as a files source requires."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    write(hidden)
    hidden.rename(path)


def write_views(path: Path, rows: list[tuple[float, int, str]]) -> None:
    times = [datetime.fromisoformat(at(t)).replace(tzinfo=None) for t, _, _ in rows]
    columns = {
        "ts": pa.array(times, pa.timestamp("us")),
        "k": pa.array([k for _, k, _ in rows], pa.int64()),
        "page": pa.array([page for _, _, page in rows], pa.string()),
    }
    pq.write_table(pa.table(columns), path)


def stream(
    name: str, columns: dict[str, str], source: dict[str, Any], lateness: str = "60s"
) -> dict[str, Any]:
    return {"name": name, "columns": columns, "event_time": "ts", "lateness": lateness, "source": source}


def follow(
    service: RunningService, query: str, count: int, after: str | None = None
) -> list[tuple[str, Any]]:
    """Wait for the next results of a query: cursor and row of each."""
    headers = {} if after is None else {"Last-Event-ID": after}
    with service.events(f"/queries/{query}/results/stream", headers) as events:
        return [(event.id, event.data) for event in islice(events, count)]


def run_id(service: RunningService) -> str:
    engine = service.ok("GET", "/engine", 200)
    assert engine["state"] == "running", engine
    return str(engine["run_id"])


def test_queries_come_and_go_while_one_spark_query_runs(service: RunningService, tmp_path: Path) -> None:
    put_file(tmp_path / "views" / "1.parquet", lambda path: write_views(path, [(1, 1, "a"), (2, 2, "b")]))
    views = {"type": "files", "format": "parquet", "path": str(tmp_path / "views")}
    load = {"type": "generator", "rate_per_s": 20, "rows": 200, "seed": 7, "start": at(0)}
    load["columns"] = {"k": {"distribution": "uniform", "low": 0, "high": 4}}
    service.ok("POST", "/streams", 201, json=stream("lc_clicks", CLICKS, {"type": "http"}))
    service.ok("POST", "/streams", 201, json=stream("lc_views", VIEWS, views))
    service.ok("POST", "/streams", 201, json=stream("lc_load", {"ts": "timestamp", "k": "bigint"}, load))

    # The first query: a family over two streams, results from events and from files.
    cql = f"SELECT a.k, a.v, a.price, b.page, b.ts AS seen {JOIN.format(a='lc_clicks', b='lc_views')}"
    added = service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "lc_q1", "cql": cql})
    assert (added["desired"], added["observed"]) == ("running", "running")
    first_run = run_id(service)

    clicks = [
        {"ts": at(3), "k": 1, "v": 0.5, "price": "9.90"},
        {"ts": at(4), "k": 2, "v": None, "price": None},
        {"ts": at(5), "k": 3, "v": 1.5, "price": "1.00"},
    ]
    receipt = service.ok("POST", "/streams/lc_clicks/events", 202, json=clicks)
    assert receipt == {"accepted": 3, "quarantined": 0, "first_offset": 0, "last_offset": 2}
    got = sorted((row for _, row in follow(service, "lc_q1", 2)), key=lambda row: row["k"])
    assert got == [
        {"k": 1, "v": 0.5, "price": "9.90", "page": "a", "seen": at(1), "_event_time": at(3)},
        {"k": 2, "v": None, "price": None, "page": "b", "seen": at(2), "_event_time": at(4)},
    ]

    # A file that comes later.
    put_file(tmp_path / "views" / "2.parquet", lambda path: write_views(path, [(6, 3, "c")]))
    everything = follow(service, "lc_q1", 3)
    assert everything[2][1]["page"] == "c"

    # Every representation, every page size, every place to resume.
    rows = [row for _, row in everything]
    for cursor, rest in ((everything[0][0], rows[1:]), (everything[1][0], rows[2:])):
        assert [row for _, row in follow(service, "lc_q1", len(rest), after=cursor)] == rest
    for limit in (1, 2, 3, 100):
        assert paged(service, "lc_q1", limit) == rows
    check_representations(service, "lc_q1", rows)

    # The plan shows the chain.
    plan = service.ok("GET", "/plan", 200)
    mine = [family for family in plan["families"] if family["streams"]["a"]["name"] == "lc_clicks"]
    assert [query["name"] for query in mine[0]["queries"]] == ["lc_q1"]
    assert mine[0]["chains"]["a"][0]["window"] == "[0s, 10s)"
    assert service.http.get("/plan?format=mermaid").text.startswith("flowchart LR\n")
    assert "lc_q1" in service.http.get("/plan?format=mermaid").text
    assert service.http.get("/plan?format=dot").text.startswith("digraph plan {\n")
    assert service.http.get("/plan").headers["etag"] == f'"{plan["version"]}"'

    # It leaves, another one of a new family comes, and the Spark query is the same.
    removed = service.ok("DELETE", f"/queries/lc_q1?wait={WAIT_S}", 200)
    assert (removed["desired"], removed["observed"]) == ("removed", "removed")
    cql = f"SELECT a.k, b.k AS other {JOIN.format(a='lc_views', b='lc_load')}"
    service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "lc_q2", "cql": cql})
    put_file(
        tmp_path / "views" / "3.parquet", lambda path: write_views(path, [(n, n % 4, "d") for n in range(9)])
    )
    for _, row in follow(service, "lc_q2", 5):
        assert row["k"] == row["other"]
    assert run_id(service) == first_run

    # The former query's results stay as they were, and its stream of events ends.
    service.ok("POST", "/streams/lc_clicks/events", 202, json=[{"ts": at(7), "k": 1}])
    assert paged(service, "lc_q1", 100) == rows
    with service.events("/queries/lc_q1/results/stream") as events:
        assert [event.event for event in events] == ["result"] * 3 + ["end"]
    service.ok("DELETE", f"/queries/lc_q2?wait={WAIT_S}", 200)
    assert run_id(service) == first_run


def paged(service: RunningService, query: str, limit: int) -> list[Any]:
    """All results of a query, page by page."""
    rows: list[Any] = []
    after: dict[str, str] = {}
    while True:
        page = service.ok("GET", f"/queries/{query}/results", 200, params={"limit": limit, **after})
        assert len(page["rows"]) <= limit
        rows += page["rows"]
        if not page["has_more"]:
            return rows
        after = {"after": page["next_cursor"]}


def check_representations(service: RunningService, query: str, rows: list[dict[str, Any]]) -> None:
    """The same rows in every media type."""

    def get(accept: str) -> bytes:
        response = service.http.get(f"/queries/{query}/results", headers={"Accept": accept})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].split(";")[0] == accept
        assert response.headers["sluice-has-more"] == "false"
        assert response.headers["sluice-next-cursor"]
        return response.content

    assert [json.loads(line) for line in get("application/x-ndjson").splitlines()] == rows
    texts = [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    assert list(csv.DictReader(io.StringIO(get("text/csv").decode()))) == texts
    table = pa.ipc.open_stream(get("application/vnd.apache.arrow.stream")).read_all()
    assert table.schema.field("price").type == pa.decimal128(10, 2)
    assert table.schema.field("_event_time").type == pa.timestamp("us")
    assert table["price"].to_pylist() == [row["price"] and Decimal(row["price"]) for row in rows]
    assert pq.read_table(io.BytesIO(get("application/vnd.apache.parquet"))).equals(table)


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_text_files_are_read_as_they_come(service: RunningService, tmp_path: Path, form: str) -> None:
    name = f"tf_{form}"
    lines = {"jsonl": '{{"ts": "{ts}", "k": {k}}}\n', "csv": "{ts},{k}\n"}[form]
    header = {"jsonl": "", "csv": "ts,k\n"}[form]

    def put(number: int, rows: list[tuple[float, int]]) -> None:
        text = header + "".join(lines.format(ts=at(t), k=k) for t, k in rows)
        put_file(tmp_path / "in" / f"{number}.{form}", lambda path: path.write_text(text))

    put(1, [(1, 1), (2, 2)])
    source = {"type": "files", "format": form, "path": str(tmp_path / "in")}
    service.ok("POST", "/streams", 201, json=stream(name, {"ts": "timestamp", "k": "bigint"}, source))
    cql = f"SELECT a.k, b.ts AS bts {JOIN.format(a=name, b=name)} AND a.ts < b.ts"
    service.ok("POST", "/queries", 202, json={"name": name, "cql": cql})
    put(2, [(3, 2), (4, 1)])
    got = [(row["k"], row["bts"]) for _, row in follow(service, name, 2)]
    assert sorted(got) == [(1, at(4)), (2, at(3))]


def test_a_broken_file_is_set_aside_and_the_rest_goes_on(
    service: RunningService, tmp_path: Path, sluice: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_file(tmp_path / "in" / "1.parquet", lambda path: path.write_bytes(b"PAR1 but not really"))
    put_file(tmp_path / "in" / "2.parquet", lambda path: pq.write_table(pa.table({"other": [1]}), path))
    put_file(tmp_path / "in" / "3.parquet", lambda path: write_views(path, [(1, 1, "a")]))
    source = {"type": "files", "format": "parquet", "path": str(tmp_path / "in")}
    service.ok("POST", "/streams", 201, json=stream("bf_views", VIEWS, source))
    cql = f"SELECT a.page {JOIN.format(a='bf_views', b='bf_views')}"
    service.ok("POST", "/queries", 202, json={"name": "bf_q", "cql": cql})
    assert [row["page"] for _, row in follow(service, "bf_q", 1)] == ["a"]
    # A file that looks broken gets a listing interval to settle, so it may come after the first result.
    deadline = time.monotonic() + WAIT_S
    while set_aside_files(service, "bf_views") != {"1.parquet", "2.parquet"}:
        assert time.monotonic() < deadline, service.ok("GET", "/statistics", 200)
        time.sleep(0.1)

    # Corrected under its name, and asked for from a shell, it is read; the other one stays aside.
    put_file(tmp_path / "in" / "1.parquet", lambda path: write_views(path, [(2, 2, "b")]))
    monkeypatch.setenv("SLUICE_URL", service.root)
    told = sluice("stream", "retry", "bf_views")
    assert told.returncode == 0, told.stderr
    assert [line.split()[0] for line in told.stdout.splitlines()][:1] == ["FILE"]
    assert "1.parquet" in told.stdout
    assert [row["page"] for _, row in follow(service, "bf_q", 2)] == ["a", "b"]
    while set_aside_files(service, "bf_views") != {"2.parquet"}:
        assert time.monotonic() < deadline + WAIT_S, service.ok("GET", "/statistics", 200)
        time.sleep(0.1)


def set_aside_files(service: RunningService, stream_name: str) -> set[str]:
    """Return the names of a stream's files that statistics report as unreadable."""
    streams = service.ok("GET", "/statistics", 200)["streams"]
    (found,) = (s for s in streams if s["stream"] == stream_name)
    return {Path(path).name for path, _ in found["set_aside"]}


@pytest.mark.slow
def test_a_paused_engine_goes_on_where_it_stopped(service: RunningService) -> None:
    service.ok(
        "POST", "/streams", 201, json=stream("pe_s", {"ts": "timestamp", "k": "bigint"}, {"type": "http"})
    )
    cql = f"SELECT a.k {JOIN.format(a='pe_s', b='pe_s')}"
    service.ok("POST", f"/queries?wait={WAIT_S}", 201, json={"name": "pe_q", "cql": cql})
    service.ok("POST", "/engine:pause", 202)
    assert service.ok("GET", "/engine", 200)["state"] == "paused"
    service.ok("POST", "/engine:pause", 202)
    service.ok("POST", "/streams/pe_s/events", 202, json=[{"ts": at(1), "k": 1}])
    service.ok("POST", "/engine:resume", 202)
    assert [row for _, row in follow(service, "pe_q", 1)] == [{"k": 1, "_event_time": at(1)}]


def test_a_mutation_repeated_under_its_key_is_done_once(service: RunningService) -> None:
    body = stream("ik_s", {"ts": "timestamp", "k": "bigint"}, {"type": "http"})
    for replayed in (None, "true"):
        response = service.http.post("/streams", json=body, headers={"Idempotency-Key": "ik-1"})
        assert response.status_code == 201
        assert response.headers.get("idempotency-replayed") == replayed
        assert response.headers["location"] == "/api/v1/streams/ik_s"
    events = [{"ts": at(1), "k": 1}]
    receipts = [
        service.ok("POST", "/streams/ik_s/events", 202, json=events, headers={"Idempotency-Key": "ik-2"})
        for _ in range(3)
    ]
    assert receipts == [{"accepted": 1, "quarantined": 0, "first_offset": 0, "last_offset": 0}] * 3
    service.ok("POST", "/streams/ik_s/events", 409, json=[], headers={"Idempotency-Key": "ik-2"})


def test_putting_a_query_twice_is_success_and_changing_it_is_not(service: RunningService) -> None:
    service.ok(
        "POST", "/streams", 201, json=stream("pu_s", {"ts": "timestamp", "k": "bigint"}, {"type": "http"})
    )
    cql = f"SELECT a.k {JOIN.format(a='pu_s', b='pu_s')}"
    service.ok("PUT", "/queries/pu_q", 202, json={"cql": cql})
    again = service.ok("PUT", f"/queries/pu_q?wait={WAIT_S}", 200, json={"cql": cql})
    assert again["observed"] == "running"
    service.ok("PUT", "/queries/pu_q", 409, json={"cql": cql.replace("10", "20")})
    assert service.ok("GET", "/queries/pu_q", 200)["cql"] == cql


def test_a_change_made_for_another_plan_version_is_refused(service: RunningService) -> None:
    service.ok(
        "POST", "/streams", 201, json=stream("im_s", {"ts": "timestamp", "k": "bigint"}, {"type": "http"})
    )
    cql = f"SELECT a.k {JOIN.format(a='im_s', b='im_s')}"
    etag = service.http.get("/plan").headers["etag"]
    service.ok("POST", "/queries", 202, json={"name": "im_q1", "cql": cql}, headers={"If-Match": etag})
    for method, path, body in (
        ("POST", "/queries", {"name": "im_q2", "cql": cql}),
        ("PUT", "/queries/im_q2", {"cql": cql}),
        ("DELETE", "/queries/im_q1", None),
    ):
        problem = service.ok(method, path, 412, json=body, headers={"If-Match": etag})
        assert problem["type"] == "urn:sluice:problem:stale-plan-version"
    assert service.ok("GET", "/queries/im_q1", 200)["desired"] == "running"
    service.ok("GET", "/queries/im_q2", 404)


def test_collections_come_in_pages_by_name(service: RunningService) -> None:
    for name in ("pg_b", "pg_c", "pg_a"):
        service.ok("POST", "/streams", 201, json=stream(name, {"ts": "timestamp"}, {"type": "http"}))
    names: list[str] = []
    after: dict[str, str] = {}
    while True:
        page = service.ok("GET", "/streams", 200, params={"limit": 2, **after})
        names += [item["name"] for item in page["items"]]
        if not page["has_more"]:
            break
        after = {"after": page["next_cursor"]}
    assert names == sorted(names)
    assert {"pg_a", "pg_b", "pg_c"} <= set(names)


def test_a_second_service_on_the_same_data_directory_is_refused(service: RunningService) -> None:
    second = subprocess.run(
        serve_command(service.data_dir, free_port()),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert second.returncode == 2
    assert str(service.data_dir) in second.stderr
    assert "Traceback" not in second.stderr
    assert run_id(service)


def test_the_doctor_finds_a_service_at_work(service: RunningService, sluice: Command) -> None:
    port = service.root.rpartition(":")[2]
    told = sluice("doctor", "--data-dir", service.data_dir, "--port", port, "--json")
    assert told.returncode == 0, told.stdout
    found = {each["part"]: each["told"] for each in json.loads(told.stdout)}
    assert found["port"] == f"A service of Sluice answers on {service.root}/health/ready: ok."
    assert f"Process {service.process.pid} on " in found["catalog"]


def test_probes_and_metrics_are_where_their_readers_look(service: RunningService) -> None:
    for path in ("/health/live", "/health/ready", "/api/v1/health/live", "/api/v1/health/ready"):
        assert service.http.get(service.root + path).json() == {"status": "ok"}
    text = service.http.get(f"{service.root}/metrics").text
    assert 'sluice_engine_state{state="running"} 1.0' in text
    assert "sluice_batches_total" in text

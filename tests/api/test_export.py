"""Exports of results and their streams over raw HTTP, without an engine."""

from __future__ import annotations

import csv
import io
import json
import logging
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uvicorn

from api.results import endpoints as endpoints
from service.access.api_keys import create_key
from service.cli.client import Client
from service.cli.results_cli import RowsForm, export, followed
from service.errors import RequestRefused
from service.results import results
from tests.api.without_engine import CQL, Service
from tests.builders import stream_document
from tests.epochs import begin_epoch
from tests.service.compacting import compact, compactor_of
from tests.service.pairs import Batches
from tests.service.results.test_results import pair
from tests.sluice_run import Command
from tests.waiting import until


class Exported:
    """A service without its engine, whose query has results in seven batches."""

    def __init__(self, directory: Path) -> None:
        self.service = Service(directory)
        for name in ("A", "B"):
            self.service.made("POST", "/streams", stream_document(name))
        query = self.service.made("POST", "/queries", {"name": "q", "cql": CQL})
        store, where = self.service.store, self.service.workspace.data_dir
        begin_epoch(store)
        self.batches = Batches(store, where.results, {1: (query["id"],)})
        rng = random.Random(1)
        for batch in range(7):
            rows = [pair(1, rng.randint(1, 3), n, 0, batch * 10 + n) for n in range(rng.randint(1, 9))]
            self.batches.commit(rows)
        answer = self.service.made("GET", "/queries/q/results?limit=10000")
        self.rows = [(row["k"], row["_event_time"]) for row in answer["rows"]]
        self.cursors = [f"{batch}.{n + 1}" for batch, _, rows in self.given() for n in range(rows)]

    def given(self) -> tuple[tuple[int, int, int], ...]:
        return self.service.store.counts.of_queries([self.batches.routes[1][0]])

    def get(self, query: str) -> httpx.Response:
        return self.service.request("GET", f"/queries/q/results:export?{query}")


@pytest.fixture
def exported(tmp_path: Path) -> Iterator[Exported]:
    made = Exported(tmp_path / "data")
    yield made
    made.service.close()


def rows_of(form: str, answer: httpx.Response) -> list[tuple[Any, str]]:
    """Return the rows of a file, with the event time as text."""
    assert answer.status_code == 200, answer.text
    if form == "ndjson":
        return [(row["k"], row["_event_time"]) for row in map(json.loads, answer.text.splitlines())]
    if form == "csv":
        head, *lines = csv.reader(answer.text.splitlines())
        assert head == ["k", "_event_time"]
        return [(int(k), time_text) for k, time_text in lines]
    file = io.BytesIO(answer.content)
    table = pq.read_table(file) if form == "parquet" else pa.ipc.open_stream(file).read_all()
    texts = (f"{value.isoformat(timespec='microseconds')}Z" for value in table["_event_time"].to_pylist())
    return list(zip(table["k"].to_pylist(), texts, strict=True))


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "ndjson"])
def test_an_export_has_the_rows_between_two_cursors(
    exported: Exported, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also once files are merged; however many rows come together."""
    rng = random.Random(form)
    everything, cursors = exported.rows, exported.cursors
    answer = exported.get(f"format={form}")
    assert rows_of(form, answer) == everything
    assert answer.headers["sluice-rows"] == str(len(everything))
    assert answer.headers["sluice-next-cursor"] == cursors[-1]
    assert answer.headers["content-disposition"] == f'attachment; filename="q.{form}"'
    data_dir = exported.service.workspace.data_dir.root
    assert compact(compactor_of(data_dir, exported.service.store))
    for _ in range(4):
        monkeypatch.setattr(results, "_ROWS_PER_TABLE", rng.choice([1, 3, 1000]))
        first, end = sorted(rng.sample(range(1, len(everything) + 1), 2))
        answer = exported.get(f"format={form}&after={cursors[first - 1]}&until={cursors[end - 1]}")
        assert rows_of(form, answer) == everything[first:end]
        assert answer.headers["sluice-rows"] == str(end - first)
        assert answer.headers["sluice-next-cursor"] == cursors[end - 1]
    nothing = exported.get(f"format={form}&after={cursors[3]}&until={cursors[3]}")
    assert (rows_of(form, nothing), nothing.headers["sluice-rows"]) == ([], "0")


def test_what_cannot_be_exported_is_said_before_a_byte_is_sent(exported: Exported) -> None:
    last = exported.cursors[-1]
    for query, status, detail in (
        ("format=xml", 422, "format"),
        ("format=csv&after=x", 422, '"x" is not a cursor'),
        ("format=csv&after=9.1", 422, 'cursor "9.1" is beyond the results of this query'),
        (
            f"format=csv&after={last}&until=0.1",
            422,
            f'cursor "0.1" is not between "{last}" and the last result of this query',
        ),
        (
            "format=csv&until=6.99",
            422,
            'cursor "6.99" is not between "0.0" and the last result of this query',
        ),
    ):
        answer = exported.get(query)
        assert answer.status_code == status
        assert detail in answer.text.replace('\\"', '"')
    assert exported.service.send("GET", "/queries/none/results:export?format=csv").status_code == 404


def test_an_export_ends_where_the_columns_change(exported: Exported) -> None:
    cql = CQL.replace("A.k FROM", "A.k, B.k AS bk FROM")
    exported.service.made("PATCH", "/queries/q", {"cql": cql})
    ids = exported.service.made("GET", "/queries/q")["revisions"]
    exported.batches.version += 1
    exported.batches.routes = {1: exported.batches.routes[1], 2: (ids[-1],)}
    exported.batches.commit([pair(2, 1, 0, 0, 7)])
    end = exported.cursors[-1]
    answer = exported.get("format=csv")
    assert answer.status_code == 422
    assert answer.json()["detail"] == f'the columns of the query change after cursor "{end}"'
    assert rows_of("csv", exported.get(f"format=csv&until={end}")) == exported.rows
    assert exported.get(f"format=csv&after={end}").text.splitlines()[0] == '"k","bk","_event_time"'


def test_the_events_of_a_page_are_its_rows_with_their_cursors(
    exported: Exported, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And while there is nothing to tell, the stream says that it is alive."""
    monkeypatch.setattr(endpoints, "_EVENTS_PER_PAGE", 4)
    monkeypatch.setattr(endpoints, "_PING_S", 0.01)
    workspace = exported.service.workspace

    async def followed() -> str:
        text = ""
        series, page = await endpoints.open_stream("q", workspace)
        with exported.service.app.state.readers.reading(workspace, series, None) as reader:
            async for part in endpoints.events_of(workspace, "/x", reader, page):
                text += part.decode()
                if ": ping" in text:
                    return text
        raise AssertionError("a running query's stream has ended")

    events = anyio.run(followed).split("\n\n")
    assert events[-2:] == [": ping", ""]
    assert events[:-2] == [
        f'event: result\ndata: {{"k":{k},"_event_time":"{at}"}}\nid: {cursor}'
        for (k, at), cursor in zip(exported.rows, exported.cursors, strict=True)
    ]


@contextmanager
def listening(service: Service) -> Iterator[tuple[uvicorn.Server, str]]:
    """A server in a thread, with host and port."""
    server = uvicorn.Server(uvicorn.Config(service.app, lifespan="off", log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield server, f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def test_a_stream_of_a_key_that_is_revoked_ends(exported: Exported) -> None:
    """Long before the first ping, after which it would be noticed anyway."""
    keys = exported.service.store.api_keys
    headers = {"Authorization": f"Bearer {create_key(keys, 'ann', ['read'])}"}

    with listening(exported.service) as (_, host):
        address = f"http://{host}/api/v1/queries/q/results/stream"
        with httpx.stream("GET", address, headers=headers, timeout=60) as answer:
            lines = answer.iter_lines()
            assert next(line for line in lines if line) == "event: result"
            keys.revoke("ann")
            told = [line for line in lines if line.startswith(("event: gone", "event: end", 'data: {"type"'))]

    assert told[0] == "event: gone"
    assert json.loads(told[1].removeprefix("data: "))["code"] == "unauthenticated"


@pytest.mark.parametrize("path", ["results:export?format=ndjson", "results/stream"])
def test_a_client_that_goes_away_leaves_nothing_in_the_log(
    exported: Exported, path: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs up in the middle of a body that is much larger than what buffers hold."""
    for _ in range(20):
        exported.batches.commit([pair(1, n, n, 0, n) for n in range(2_000)])
    monkeypatch.setattr(results, "_ROWS_PER_TABLE", 1_000)
    asked: list[object] = []
    looked = exported.service.workspace.results._look

    def look(*args: Any, **options: Any) -> object:
        asked.append(args)
        return looked(*args, **options)

    monkeypatch.setattr(exported.service.workspace.results, "_look", look)
    with caplog.at_level(logging.INFO), listening(exported.service) as (server, host):
        with socket.create_connection(("127.0.0.1", int(host.partition(":")[2]))) as client:
            client.sendall(f"GET /api/v1/queries/q/{path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert b"200 OK" in client.recv(100)
        state = server.server_state
        until(lambda: not (state.connections or state.tasks), lambda: "the client that has gone is served")
    assert asked
    assert [record for record in caplog.records if record.levelno >= logging.WARNING or record.exc_info] == []


@pytest.mark.parametrize("form", [RowsForm.NDJSON, RowsForm.CSV])
def test_the_shell_follows_until_the_query_is_removed(exported: Exported, form: RowsForm) -> None:
    def go_on() -> None:
        exported.batches.commit([pair(1, 1, n, 0, 1_000 + n) for n in range(3)])
        exported.service.made("DELETE", "/queries/q")
        exported.batches.version += 1
        exported.batches.commit()

    with listening(exported.service) as (_, host), closing((client := Client(f"http://{host}"))._http):
        texts = []
        for text in followed(client, "q", None, form):
            texts.append(text)
            if len(texts) == 1:
                go_on()
    lines = "".join(texts).splitlines()
    if form is RowsForm.CSV:
        assert lines.pop(0) == '"k","_event_time"'
        found = [int(line.split(",")[0]) for line in lines]
    else:
        found = [json.loads(line)["k"] for line in lines]
    assert found == [k for k, _ in exported.rows] + [1_000, 1_001, 1_002]


@pytest.mark.parametrize("form", list(RowsForm))
def test_the_shell_writes_all_results_between_two_cursors_into_a_file(
    exported: Exported, form: RowsForm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if form is RowsForm.JSON:
        return
    file, cursors = tmp_path / f"q.{form}", exported.cursors
    with listening(exported.service) as (_, host), closing((client := Client(f"http://{host}"))._http):
        export(client, "q", cursors[0], cursors[4], form, file)
        assert (
            capsys.readouterr().err
            == f"sluice: 4 results in {file}; for later results, use --after {cursors[4]}\n"
        )
        answer = httpx.Response(200, content=file.read_bytes())
        assert rows_of(form, answer) == exported.rows[1:5]
        with pytest.raises(RequestRefused, match='"x" is not a cursor'):
            export(client, "q", "x", None, form, file)
    assert httpx.Response(200, content=file.read_bytes()).content == answer.content
    assert [path.name for path in tmp_path.glob("*q.*")] == [file.name]


def test_the_shell_says_that_a_page_is_not_all(exported: Exported, sluice: Command) -> None:
    with listening(exported.service) as (_, host):
        url = ("--url", f"http://{host}")
        page = sluice("query", "results", "q", "--limit", "3", *url)
        assert len(page.stdout.splitlines()) == 3
        assert page.stderr == (
            f"sluice: there are more results; continue with --after {exported.cursors[2]}, or print all with "
            "--follow\n"
        )
        rest = sluice("query", "results", "q", "--after", exported.cursors[2], *url)
        assert (len(rest.stdout.splitlines()), rest.stderr) == (len(exported.rows) - 3, "")
        for wrong in (("--format", "parquet"), ("--until", "1.1"), ("--out", "x", "--follow")):
            done = sluice("query", "results", "q", *wrong, *url)
            assert done.returncode == 2
            assert "--out" in done.stderr

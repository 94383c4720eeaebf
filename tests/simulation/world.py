"""The world of a seed: a service and its clients, who write down what they were told (``Ledger``)."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

from catalog.errors import QueryNotFound, StreamInUse
from catalog.store.results import retention
from catalog.times import clock
from catalog.values.change import AddQuery, Change, PauseQuery, RemoveQuery, ResumeQuery, UpdateQuery
from catalog.values.sink import FilesSink
from catalog.values.stream import Column, FilesSource, HttpSource, Stream
from service.documents.migration_document import MigrationRequest
from service.errors import ResultsExpired
from service.inputs.partitions import ROW_BITS
from service.inputs.sources.posted.http_log import Sending
from service.sinks.delivery import turns
from tests.operators.queries import Row
from tests.simulation.death import Death, Died
from tests.simulation.fast import fast, write_empty_catalog
from tests.simulation.ledger import Ledger, Reading
from tests.simulation.service import STRATEGIES, SimulatedService

SECOND_US = 1_000_000
_START_US = 1_800_000_000 * SECOND_US
COLUMNS = tuple(
    Column(name, kind)
    for name, kind in (("ts", "timestamp"), ("id", "bigint"), ("k", "bigint"), ("v", "int"))
)
FILTERS = ("", " AND a.v < 5", " AND b.v > 2", " AND a.v > 2 AND b.v < 5", " AND a.v < b.v")
#: Every third query asks about absence.
JOINS = (
    *("",) * 6,
    "LEFT JOIN {b} ON a.k = b.k",
    "FULL JOIN {b} ON a.k = b.k",
    "RIGHT JOIN {b} ON a.k = b.k WHERE a.k IS NULL",
)
WINDOWS_S = (1, 2, 5, 9, 20)
_KINDS = {
    "post": 30,
    "file": 6,
    "batch": 36,
    "change": 12,
    "migrate": 2,
    "watch": 8,
    "read": 10,
    "deliver": 10,
    "clock": 3,
    "die": 5,
    "send again": 4,
    "move": 2,
}


@dataclass(slots=True)
class VirtualTime:
    """Stands for the module ``time`` in ``catalog.times.clock``."""

    now_us: int = _START_US

    def time_ns(self) -> int:
        """Return the virtual wall clock, which goes on a millisecond with each look."""
        self.now_us += 1000
        return self.now_us * 1000


@dataclass(slots=True)
class _Post:
    """A request that may be sent again."""

    stream: Stream
    events: list[dict[str, int]]
    sending: Sending
    answered: tuple[int, int] | None = None


class World:
    """One service from its first start to the end.

    Args:
        directory: Where everything is kept; with an empty catalog.
        seed: The only source of randomness; in worlds of negative ones streams come and go, too.
        time: The virtual clock.
        death: Watches the directory.
    """

    def __init__(self, directory: Path, seed: int, time: VirtualTime, death: Death) -> None:
        self.rng, self.streams_come = Random(seed), seed < 0
        self.directory, self.time, self.death = directory, time, death
        self.ledger = Ledger()
        self.history: list[str] = []
        self.service = SimulatedService(directory, self.rng, death, self.history)
        self.posts: list[_Post] = []
        self.names = itertools.count(1)
        self.row_ids = itertools.count(1)
        self.event_time_us = _START_US
        self.queries: dict[str, tuple[str, bool]] = {}

    def close(self) -> None:
        """End it."""
        self.death.revive()
        self.service.close()

    def run(self) -> None:
        """Take some steps, then let all come to its end."""
        # The row of a removed stream goes after ten batches and more.
        steps = self.rng.randint(*((40, 120) if self.streams_come else (8, 60)))
        self._start()
        for stream in self._streams():
            self._registered(stream)
        chances = _KINDS | ({"stream": 8} if self.streams_come else {})
        kinds, weights = list(chances), list(chances.values())
        for _ in range(steps):
            kind = self.rng.choices(kinds, weights)[0]
            self.history.append(kind)
            self.time.now_us += self.rng.randrange(SECOND_US)
            self._step(kind)
        self.history.append("end")
        self.death.left = None
        for post in self.posts:
            if post.answered is None:
                self._append(post)
        self._watch()
        while self.service.batch():
            self._observe()
        self._observe()
        self._deliver()
        for name in list(self.ledger.readings):
            while self._read_page(self.ledger.readings[name], 50):
                pass

    def _start(self) -> None:
        self.service.start()
        self._observe()

    def _step(self, kind: str) -> None:
        if kind == "die":
            # At some write of the steps that follow.
            self.death.left = int(self.rng.expovariate(1 / 12))
            return
        if self.death.left is None and self.rng.random() < 0.1:
            self.death.left = self.rng.randrange(4)
        try:
            self._do(kind)
            if kind in ("batch", "change", "migrate", "watch"):
                self._observe()
        except Died:
            self.history.append("died")
            self.service.die(whole=self.rng.random() < 0.6)
            self._start()

    def _do(self, kind: str) -> None:
        rng = self.rng
        if kind == "post":
            self._post()
        elif kind == "send again" and self.posts:
            self._append(rng.choice(self.posts))
        elif kind == "file":
            self._file()
        elif kind == "batch":
            self.service.batch()
        elif kind == "change":
            self._change()
        elif kind == "migrate":
            strategy = rng.choice(STRATEGIES)
            request = MigrationRequest(strategy=strategy, written={"strategy": strategy})
            self.service.workspace.migrations.migrate(request, actor="client")
        elif kind == "watch":
            self._watch()
        elif kind == "read" and self.ledger.readings:
            self._read_page(self.ledger.readings[rng.choice(sorted(self.ledger.readings))], rng.randint(1, 7))
        elif kind == "deliver":
            self._deliver(rng.randint(1, 3))
        elif kind == "move":
            self.service.move()
            self._observe()
        elif kind == "stream":
            self._stream()
        elif kind == "clock":
            self.time.now_us += rng.choice((-1, 1)) * rng.randrange(3600 * SECOND_US)

    def _streams(self) -> list[Stream]:
        rng = self.rng
        streams = []
        for name in ("A", "B", "C")[: rng.choice((2, 2, 3))]:
            source: HttpSource | FilesSource = HttpSource()
            if name == "B" and rng.random() < 0.4:
                path = self.directory / "sources" / name
                path.mkdir(parents=True)
                source = FilesSource("jsonl", str(path), rng.choice((None, None, 1)), settle_us=0)
            lateness_us = rng.choice((0, 2, 10)) * SECOND_US
            idle_us = rng.choice((None, None, SECOND_US))
            streams.append(Stream(0, name, COLUMNS, "ts", lateness_us, source, idle_timeout_us=idle_us))
        return streams

    def _stream(self) -> None:
        """Remove a stream that was registered later, or register one more; nobody dies meanwhile."""
        rng = self.rng
        left, self.death.left = self.death.left, None
        later = [s for s in self.service.workspace.streams.all() if s.name.startswith("S")]
        if later and rng.random() < 0.6:
            with suppress(StreamInUse):
                self.service.workspace.streams.remove(rng.choice(later).name)
        else:
            name = f"S{len(self.ledger.streams)}"
            self._registered(Stream(0, name, COLUMNS, "ts", 2 * SECOND_US, HttpSource()))
        self.death.left = left

    def _registered(self, draft: Stream) -> None:
        stream = self.service.workspace.streams.register(draft)
        self.ledger.streams[stream.id] = stream
        self.ledger.rows[stream.id] = {}
        self.ledger.heads[stream.id] = 0

    def _rows(self) -> list[dict[str, int]]:
        rng, rows = self.rng, []
        for _ in range(rng.choice((1, 1, 2, 3, 6))):
            self.event_time_us += rng.choice((0, 0, 1, 200, 1000, 4000)) * 1000
            back = rng.choice((0, 0, 0, 0, 1, 3, 12)) * SECOND_US
            ts = self.event_time_us - back
            rows.append({"ts": ts, "id": next(self.row_ids), "k": rng.randrange(3), "v": rng.randrange(8)})
        return rows

    def _post(self) -> None:
        posted = [s for s in self.service.workspace.streams.all() if isinstance(s.source, HttpSource)]
        number = len(self.posts)
        post = _Post(self.rng.choice(posted), self._rows(), Sending(f"post-{number}", f"print {number}"))
        self.posts.append(post)
        self._append(post)

    def _append(self, post: _Post) -> None:
        """Send a request, unless its stream has gone; the answer may be lost."""
        if all(stream.id != post.stream.id for stream in self.service.workspace.streams.all()):
            return
        self.death.write()  # the log writes past Python's files
        receipt = self.service.workspace.streams.append(post.stream, post.events, sending=post.sending)
        offsets = (receipt.first_offset, receipt.last_offset)
        assert post.answered in (None, offsets), f"{post.sending.key}: {offsets}, before {post.answered}"
        if post.answered is None:
            post.answered = offsets
            assert offsets[1] - offsets[0] + 1 == len(post.events)
            for offset, event in zip(range(offsets[0], offsets[1] + 1), post.events, strict=True):
                self._arrived(post.stream.id, offset, event)
        if self.death.left is not None and self.rng.random() < 0.3:
            # The answer is lost. The events are there, even if their stream goes before they are sent again.
            self.death.left = 0
            self.death.write()

    def _arrived(self, stream_id: int, position: int, event: dict[str, int]) -> None:
        rows = self.ledger.rows[stream_id]
        assert position not in rows, f"position {position} of stream {stream_id} was given twice"
        rows[position] = Row(position, event["ts"], {"k": event["k"], "v": event["v"], "id": event["id"]})
        self.ledger.ids[stream_id, position] = event["id"]

    def _file(self) -> None:
        for stream in self.service.workspace.streams.all():
            if isinstance(stream.source, FilesSource):
                number = len(list(Path(stream.source.path).iterdir()))
                events = self._rows()
                text = "".join(json.dumps(row | {"ts": _timestamp(row["ts"])}) + "\n" for row in events)
                # Not a write of the service.
                left, self.death.left = self.death.left, None
                (Path(stream.source.path) / f"{number:04}.jsonl").write_text(text)
                self.death.left = left
                for n, event in enumerate(events):
                    self._arrived(stream.id, (number << ROW_BITS) + n, event)

    def _watch(self) -> None:
        self.service.watcher.run_once()
        assert self.service.watcher.faults.failing() == ()

    def _deliver(self, batches: int = 1000) -> None:
        store = self.service.workspace._store
        last = store.batches.last()
        if last is None:
            return
        store.sinks.resolve()
        while True:
            ready, held = turns(store.sinks.pending())
            delivered = sum(self.service.delivery.deliver(record, last, batches) for record in ready)
            if not (held and delivered):
                return

    def _change(self) -> None:
        """Change queries under an idempotency key, which is sent again after a death."""
        rng = self.rng
        running = sorted(name for name, (_, runs) in self.queries.items() if runs)
        paused = sorted(name for name, (_, runs) in self.queries.items() if not runs)
        kinds = ["add"] * (3 if len(self.queries) < 4 else 1)
        kinds += ["update", "update", "pause", "remove"] * (len(running) > 1)
        kinds += ["resume", "resume", "remove paused"] * bool(paused)
        kind = rng.choice(kinds)
        change: Change
        if kind == "add":
            name = f"q{next(self.names)}"
            sink = FilesSink(name, "ndjson") if rng.random() < 0.4 else None
            change = AddQuery(name, self._cql(), rng.choice(("none", "state")), sink)
        elif kind == "update":
            change = UpdateQuery(rng.choice(running), self._cql(), "state")
        elif kind == "pause":
            change = PauseQuery(rng.choice(running))
        elif kind == "resume":
            change = ResumeQuery(rng.choice(paused))
        else:
            change = RemoveQuery(rng.choice(running if kind == "remove" else paused))
        key = f"change-{len(self.history)}"
        while True:
            try:
                self._send(key, change)
                break
            except Died:
                self.history.append("died in a change")
                self.service.die(whole=True)
                self._start()
        text = change.cql if isinstance(change, AddQuery | UpdateQuery) else ""
        if isinstance(change, RemoveQuery):
            self.queries.pop(change.name)
        else:
            before = self.queries.get(change.name, (text, True))[0]
            self.queries[change.name] = (text or before, not isinstance(change, PauseQuery))

    def _send(self, key: str, change: Change) -> None:
        """Make a change once, as the API does, and learn which series it is of."""
        workspace = self.service.workspace
        answer = workspace.answers.recall(key, repr(change))
        if answer is None:
            with workspace.queries.changing((change,)) as outcome:
                found = {"series": outcome.statuses[0].series, "version": outcome.version}
                body = json.dumps(found)
                workspace.answers.remember(key, repr(change), 202, body)
            if self.death.left is not None and self.rng.random() < 0.3:
                self.death.left = 0
                self.death.write()  # the answer is lost
        else:
            body = answer.body
        series = json.loads(body)["series"]
        self.ledger.readings.setdefault(series, Reading(series))
        if isinstance(change, AddQuery) and change.sink is not None:
            self.ledger.sinks[series] = change.name
        if isinstance(change, RemoveQuery):
            self.ledger.removed.add(series)

    def _cql(self) -> str:
        rng = self.rng
        names = [stream.name for stream in self.service.workspace.streams.all()]
        a, b = rng.choice([("A", "B")] * 3 + [("B", "A"), ("A", "A"), ("A", names[-1])])
        wa, wb = rng.choice(WINDOWS_S), rng.choice(WINDOWS_S)
        # The oracle knows one way of writing the condition on both.
        filters = FILTERS if a < b else FILTERS[:-1]
        selected = f"SELECT a.id AS x, b.id AS y, a.v AS av, b.v AS bv FROM {a} [RANGE {wa} SECONDS] a"
        joined = rng.choice(JOINS)
        if joined:
            return f"{selected} {joined.format(b=f'{b} [RANGE {wb} SECONDS] b')}"
        return f"{selected}, {b} [RANGE {wb} SECONDS] b WHERE a.k = b.k{rng.choice(filters)}"

    def _read_page(self, reading: Reading, limit: int) -> bool:
        """Read a page behind the client's cursor; return whether more follows."""
        try:
            page = self.service.workspace.results.page(reading.series, reading.cursor, limit)
        except ResultsExpired:
            reading.cursor = None
            return True
        except QueryNotFound:
            assert reading.series in self.ledger.removed, f"series {reading.series} is not found"
            reading.ended = True
            return False
        if reading.cursor is None:
            reading.place = page.dropped
        for x, y in zip(page.table["x"].to_pylist(), page.table["y"].to_pylist(), strict=True):
            before = reading.got.setdefault(reading.place, (x, y))
            assert before == (x, y), f"series {reading.series}: result {reading.place} is another one"
            reading.place += 1
        reading.cursor = page.next_cursor
        return page.has_more

    def _observe(self) -> None:
        """Write down what has become visible: it must never change."""
        store, ledger = self.service.workspace._store, self.ledger
        latest = store.control_log.latest_plan()
        if latest is not None:
            records = store.queries.running()
            running = tuple(record.query for record in records)
            ledger.series |= {record.query.id: record.series for record in records}
            before = ledger.queries.setdefault(latest.version, running)
            assert before == running, f"queries of version {latest.version} have changed"
        for record in store.control_log.records(ledger.controls):
            ledger.controls = record.seq
            if record.heartbeat is not None:
                ledger.beats[record.seq] = record.heartbeat
        last = store.batches.last()
        for batch in range(max(ledger.manifests, default=-1) + 1, (-1 if last is None else last) + 1):
            manifest = store.batches.manifest(batch)
            assert manifest is not None, f"batch {batch} is not in the catalog"
            ledger.manifests[batch] = manifest
        if last is not None:
            newest = store.batches.manifest(last)
            assert newest is not None
            assert newest.digest == ledger.manifests[last].digest, f"batch {last} has changed"


def _timestamp(ts_us: int) -> str:
    moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=ts_us)
    return moment.isoformat(sep=" ", timespec="microseconds")


@contextmanager
def a_world(directory: Path, seed: int) -> Iterator[World]:
    """Make the world of a seed in a directory, made again, on a clock of its own."""
    write_empty_catalog(directory)
    time, death = VirtualTime(), Death(str(directory))
    stop, real, kept = death.watch(), clock.time, retention.KEPT_BATCHES
    clock.time = time  # of which the clock uses one function
    retention.KEPT_BATCHES = 12
    world = World(directory, seed, time, death)
    try:
        with fast():
            yield world
    finally:
        world.close()
        stop()
        clock.time, retention.KEPT_BATCHES = real, kept

"""Parts of a cluster fail one after the other, while a client posts and queries come, change and leave.

    executor killed ── S3 refuses ── S3 is slow ── PostgreSQL restarts ── Kafka broker down
    ── worker cut off ── engine cut off

A part that is cut off stays away. After each fault the job has to commit rows that were posted after it. In
the end the results are DuckDB's over all rows:

    q          never changes            its pairs, each once
    changing   a window per fault       each pair of its shortest window once, and none outside its longest
    during_N   from before fault N to   each pair of rows that were posted in this time once, and none that
               after the fault N + 1    is not a pair
    topics     never changes            joins the Kafka topics left and right, and sends each pair once
                                        to the topic pairs
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from os import getloadavg
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.errors import RequestUnderWay
from tests.api.running_service import RunningService
from tests.cluster.sluice_cluster import PATIENCE_S, Cluster, cluster, wait_until
from tests.crash.apart import ready
from tests.crash.posting import AT_ONCE, CQL, ROWS, Client, add_streams, pairs, results

#: Windows of `changing` (A and B, ms), one after the other.
WINDOWS = ((200, 150), (100, 50), (200, 50), (100, 150))
SHORTEST, LONGEST = (100, 50), (200, 150)
#: Windows of `during_N`, and the keys that it takes.
DURING, CONDITION = (150, 100), "k < 20"
#: Time in which a busy machine must notice a fault and repeat its batch.
LIMIT_S = 3 * PATIENCE_S
#: Events that each topic gets before a fault.
EVENTS = 20
TOPICS = (
    'SELECT a.k AS k, b.k AS other FROM "left" [RANGE 1 SECOND] AS a, "right" [RANGE 1 SECOND] AS b '
    "WHERE a.k = b.k"
)

Marks = dict[str, int]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault.

    Attributes:
        name: What happens.
        begin: Makes it happen.
        end: Ends it, where it does.
        lasts_s: How long it lasts; None: until a batch has been committed in spite of it.
    """

    name: str
    begin: Callable[[Cluster], None]
    end: Callable[[Cluster], None] | None = None
    lasts_s: float | None = 0


def kill_executor(made: Cluster) -> None:
    """Kill all executors of a worker."""
    executors = made.network.hosts["worker1"].processes("CoarseGrainedExecutorBackend")
    assert executors, made.told()
    for process in executors:
        process.kill()


def cut_engine(made: Cluster) -> None:
    """Cut off the engine at work."""
    (at_work,) = [name for name, engine in made.engines.items() if ready(engine) == "ok"]
    made.network.cut(made.network.hosts[at_work])


def told_s3(order: str) -> Callable[[Cluster], None]:
    """Tell the S3 server how to answer from now on."""
    return lambda made: made.s3.tell(f"fault {order}")


def told_kafka(order: str) -> Callable[[Cluster], None]:
    """Give the Kafka brokers an order."""
    return lambda made: made.kafka.tell(order)


FAULTS = (
    Fault("executors of a worker are killed", kill_executor),
    Fault("S3 answers 503", told_s3("refused"), told_s3("none"), 20),
    Fault("S3 takes a second per request", told_s3("slow"), told_s3("none"), None),
    Fault(
        "PostgreSQL is restarted",
        lambda made: made.postgres.tell("stop"),
        lambda made: made.postgres.tell("start"),
        15,
    ),
    Fault("a Kafka broker is down", told_kafka("down 1"), told_kafka("up 1"), 15),
    Fault("a worker is cut off", lambda made: made.network.cut(made.network.hosts["worker2"])),
    Fault("the engine at work is cut off", cut_engine),
)


@dataclass(slots=True)
class Trial:
    """A cluster under load, and what was asked of it.

    Attributes:
        made: The cluster.
        api: API process that is asked.
        client: Posts rows to the other one.
        spans: First and last id of the rows of which a query `during_N` must have all pairs.
    """

    made: Cluster
    api: RunningService
    client: Client
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    _began_s: float = field(default_factory=time.monotonic)
    _asked: int = 0

    def say(self, what: str) -> None:
        """Print what has happened, and when."""
        print(f"{time.monotonic() - self._began_s:6.0f} s  load {getloadavg()[0]:3.0f}  {what}", flush=True)

    def ask(self, method: str, path: str, json: object = None) -> None:
        """Send a request until it is answered, however long a part of the cluster is away."""
        self._asked += 1
        headers = {"Idempotency-Key": f"change-{self._asked}"}
        answers: list[httpx.Response] = []

        def is_answered() -> bool:
            try:
                answers.append(self.api.http.request(method, path, json=json, headers=headers))
            except httpx.TransportError:
                return False
            under_way = answers[-1].status_code == 409 and answers[-1].json()["code"] == RequestUnderWay.code
            return answers[-1].status_code != 503 and not under_way

        wait_until(f"{method} {path} is answered", is_answered, self.made.told, LIMIT_S)
        assert answers[-1].is_success, answers[-1].text
        self.say(f"{method} {path}: {answers[-1].status_code}")

    def reads(self, path: str) -> Any:
        """Return the answer to a request; None if the API does not answer it now."""
        try:
            answer = self.api.http.get(path, timeout=30)
        except httpx.TransportError:
            return None
        return answer.json() if answer.is_success else None

    def posted(self) -> tuple[int, Marks]:
        """Return an upper bound of the ids of all acknowledged rows, and one of their number by stream."""
        below = self.client.requests * ROWS
        return below, {name: len(rows) + AT_ONCE * ROWS for name, rows in self.client.sent.items()}

    def go_on(self, what: str) -> int:
        """Wait until all rows that have been acknowledged by now are committed; return an id above theirs."""
        below, marks = self.posted()
        began_s = time.monotonic()
        self.are_read(what, marks)
        self.say(f"{what}: rows posted after it are committed after {time.monotonic() - began_s:.0f} s")
        return below

    def are_read(self, what: str, marks: Marks) -> None:
        """Wait until the given numbers of rows of each stream are committed."""

        def done() -> bool:
            found = self.reads("/statistics")
            read = {} if found is None else {s["stream"]: s["rows"] for s in found["streams"]}
            return all(read.get(name, 0) >= rows for name, rows in marks.items())

        wait_until(f"{what}: {marks} rows are read", done, self.made.told, LIMIT_S)

    def add(self, name: str) -> int:
        """Add a query and wait until it is active; return the first id of which it has all results."""
        text = query_text(*DURING, f"AND A.{CONDITION}")
        self.ask("POST", "/queries?wait=0", {"name": name, "cql": text})

        def is_active() -> bool:
            found = self.reads(f"/queries/{name}")
            return found is not None and found["observed"] == "running"

        wait_until(f"{name} is active", is_active, self.made.told, LIMIT_S)
        self.say(f"{name} is active")
        return (self.client.requests + AT_ONCE) * ROWS


def query_text(w_a_ms: int, w_b_ms: int, condition: str = "") -> str:
    """Return the text of a query like that of the client, with other windows."""
    text = CQL.replace("300 MILL", f"{w_a_ms} MILL").replace("200 MILL", f"{w_b_ms} MILL")
    return f"{text} {condition}"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(7200)
def test_a_cluster_whose_parts_fail_gives_the_rows_of_duckdb(tmp_path: Path) -> None:
    with cluster(tmp_path, engines=2, apis=2) as made:
        api, other = made.apis
        add_streams(api)
        comes = {"q": CQL, "changing": query_text(*WINDOWS[-1])}
        changes: list[Any] = [{"add": {"name": name, "cql": cql}} for name, cql in comes.items()]
        changes.append({"add": {"name": "topics", "cql": TOPICS, "sink": add_topics(made, api)}})
        api.ok("POST", "/changes?wait=0", 202, json={"changes": changes})
        client = Client(other.root, pause_s=0.5)
        trial = Trial(made, api, client)
        client.start()
        trial.go_on("the cluster has begun")
        for number, fault in enumerate(FAULTS):
            fail(trial, number, fault)
        client.finish(20)
        last, _ = trial.posted()
        trial.are_read("all is posted", {name: len(rows) for name, rows in client.sent.items()})
        name = f"during_{len(FAULTS) - 1}"
        trial.spans[name] = (trial.spans[name][0], last)
        compare(trial)


def add_topics(made: Cluster, api: RunningService) -> dict[str, str]:
    """Create the Kafka topics, register two of them as streams, and return a sink to the third."""
    kafka = {"type": "kafka", "bootstrap": made.kafka.facts["bootstrap"]}
    for name, partitions in (("left", 2), ("right", 1), ("pairs", 2)):
        made.kafka.tell(f"create {name} {partitions}")
    for name in ("left", "right"):
        stream = {"name": name, "columns": {"ts": "timestamp", "k": "bigint"}, "event_time": "ts"}
        source = kafka | {"topic": name}
        api.ok("POST", "/streams", 201, json=stream | {"lateness": "10s", "source": source})
    return kafka | {"topic": "pairs", "key": "k"}


def fail(trial: Trial, number: int, fault: Fault) -> None:
    """Let a fault happen while a query changes, and wait until the job has gone on."""
    trial.made.kafka.tell(f"produce {number * EVENTS} {(number + 1) * EVENTS}")
    name, former = f"during_{number}", f"during_{number - 1}"
    first = trial.add(name)
    trial.spans[name] = (first, first)
    trial.say(f"{fault.name}: begins")
    with ThreadPoolExecutor(1) as asking:
        fault.begin(trial.made)
        w_a_ms, w_b_ms = WINDOWS[number % len(WINDOWS)]
        window = {"A": f"{w_a_ms} MILLISECONDS", "B": f"{w_b_ms} MILLISECONDS"}
        changed = asking.submit(trial.ask, "PATCH", "/queries/changing", {"window": window})
        if fault.lasts_s is None:
            trial.go_on(f"{fault.name}, still")
        else:
            time.sleep(fault.lasts_s)
        if fault.end is not None:
            fault.end(trial.made)
            trial.say(f"{fault.name}: is over")
        changed.result()
    last = trial.go_on(fault.name)
    if number > 0:
        trial.ask("DELETE", f"/queries/{former}")
        trial.spans[former] = (trial.spans[former][0], last)


def sent_pairs(trial: Trial) -> list[tuple[int, int]]:
    """Return what the topic ``pairs`` has, sorted."""
    return sorted((row["k"], row["other"]) for row in trial.made.kafka.tell("read pairs"))


def compare(trial: Trial) -> None:
    """Compare all results with DuckDB's."""
    sent, told = trial.client.sent, trial.made.told
    trial.say(f"{sum(map(len, sent.values()))} rows were posted")
    assert sorted(results(trial.api)) == pairs(sent, 300, 200), told()
    events = len(FAULTS) * EVENTS
    wait_until("all pairs are sent", lambda: len(sent_pairs(trial)) >= events, told, LIMIT_S)
    assert sent_pairs(trial) == [(n, n) for n in range(events)]
    found = results(trial.api, "changing")
    assert len(set(found)) == len(found)
    assert set(pairs(sent, *SHORTEST)) <= set(found) <= set(pairs(sent, *LONGEST)), told()
    for name, (first, last) in trial.spans.items():
        found, possible = results(trial.api, name), pairs(sent, *DURING, f"a.{CONDITION}")
        sure = {pair for pair in possible if all(first <= each < last for each in pair)}
        assert len(sure) > 100, name
        assert len(set(found)) == len(found), name
        assert sure <= set(found) <= set(possible), f"{name}\n{told()}"
        trial.say(f"{name}: {len(found)} results, of which {len(sure)} must be there")

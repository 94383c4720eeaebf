"""Where the time of a micro-batch goes: a budget per stage, from Spark's own event log and the manifests.

    python -m tests.bench.batch_budget [--out docs/bench]       about two minutes

Twice, with the twelve queries of many-keys: batches of a million rows, and batches of 2,000, which is what a
batch costs before any row. Medians over the batches after the first ones, while the JVM still compiles, and
after the windows have filled.

    plan      what is there to read, Spark's planning             on the driver
    offsets   the offset log
    read      reader tasks: read, filter, PACK                    on the workers, then the shuffle
    join      chain tasks: decode, join, write, report, store     on the workers; with the batch's commit
    job       what Spark does about the two stages                on the driver
    commits   the commit log, and what is left of the trigger
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tests.bench import reports
from tests.bench.peers.inputs import write_streams
from tests.bench.peers.workloads import WORKLOADS
from tests.bench.runs import event_log, events_of, manifests_of, write_workload
from tests.sluice_run import run

MANY_KEYS = WORKLOADS["many-keys"]
LOADS = {
    "a million rows": MANY_KEYS.streams,
    "2,000 rows": replace(MANY_KEYS.streams, rows=60_000, files=60, keys=5_000),
}
#: Batches left out, of each load.
FIRST = {"a million rows": 8, "2,000 rows": 30}


@dataclass(frozen=True, slots=True)
class Batch:
    """Wall clock of one batch's parts, ms, and CPU time of our own code in it."""

    plan: float
    offsets: float
    read: float
    join: float
    job: float
    commits: float
    whole: float
    pack_cpu: float
    chain_cpu: float
    state_commit: float


def batches(out: Path, log_directory: Path) -> Iterator[Batch]:
    """Read what the batches of a finished run took."""
    events = list(events_of(log_directory))
    stages: dict[str, list[tuple[int, int]]] = {}
    for event in events:
        if event["Event"] == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            batch = _batch_of(events, info["Stage ID"])
            stages.setdefault(batch, []).append((info["Submission Time"], info["Completion Time"]))
    manifests = {m.batch: m for m in manifests_of(out)}
    for event in events:
        if not event["Event"].endswith("QueryProgressEvent"):
            continue
        progress = event["progress"]
        number = progress["batchId"]
        took, ran = progress["durationMs"], stages.get(str(number), [])
        if len(ran) != 2 or number not in manifests:
            continue
        (read_from, read_to), (join_from, join_to) = ran
        plan = took["latestOffset"] + took["getBatch"] + took["queryPlanning"]
        rest = took["triggerExecution"] - plan - took["walCommit"] - took["addBatch"]
        cpu = manifests[number].cpu
        yield Batch(
            plan=plan,
            offsets=took["walCommit"],
            read=read_to - read_from,
            join=join_to - join_from,
            job=took["addBatch"] - (read_to - read_from) - (join_to - join_from),
            commits=rest,
            whole=took["triggerExecution"],
            pack_cpu=cpu.pack_us / 1000 if cpu else 0.0,
            chain_cpu=cpu.chain_us / 1000 if cpu else 0.0,
            state_commit=progress["stateOperators"][0]["commitTimeMs"],
        )


def _batch_of(events: list[dict[str, Any]], stage: int) -> str:
    """Return the batch id that a stage's job belongs to."""
    for event in events:
        if event["Event"] == "SparkListenerJobStart" and stage in event["Stage IDs"]:
            return str(event["Properties"].get("streaming.sql.batchId", ""))
    return ""


def measure(name: str, directory: Path) -> dict[str, float]:
    """Run one load and return the medians of its batches' parts, ms."""
    data = directory / name.replace(" ", "-")
    data.mkdir()
    written = write_streams(data, LOADS[name])
    queries = {query.name: query.cql() for query in MANY_KEYS.queries}
    workload = write_workload(data / "workload.yaml", written, queries)
    log = data / "events"
    outcome = run(workload, data / "out", mode="shared", environment=event_log(log))
    if outcome.returncode != 0:
        raise RuntimeError(f"sluice run failed with exit {outcome.returncode}:\n{outcome.stderr[-4000:]}")
    found = list(batches(data / "out", log))[FIRST[name] :]
    medians = {f.name: statistics.median(asdict(b)[f.name] for b in found) for f in fields(Batch)}
    return medians | {"batches": len(found)}


def table(measured: dict[str, dict[str, float]]) -> str:
    """Return the budget as a Markdown table."""
    rows = [
        ("plan: what to read, Spark's planning", "plan"),
        ("offset log", "offsets"),
        ("read stage: read, filter, PACK, shuffle", "read"),
        ("join stage: shuffle, chain, results, manifest, state", "join"),
        ("the job about the stages", "job"),
        ("commit log and the rest", "commits"),
        ("**whole batch**", "whole"),
        ("CPU of reading and packing, all tasks", "pack_cpu"),
        ("CPU of the chain, all tasks", "chain_cpu"),
        ("state commit, all tasks", "state_commit"),
    ]
    lines = [(text, *(f"{m[key]:,.0f}" for m in measured.values())) for text, key in rows]
    return reports.table(("ms, medians", *measured), lines)


def main(out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("docs/bench")) -> None:
    """Measure both loads and write the table and its JSON."""
    with tempfile.TemporaryDirectory(prefix="sluice-budget-") as directory:
        measured = {name: measure(name, Path(directory)) for name in LOADS}
    text = table(measured)
    head = "Written by `python -m tests.bench.batch_budget`; twelve queries of many-keys, two cores."
    page = f"# Where the time of a micro-batch goes\n\n{head}\n\n{text}"
    typer.echo(reports.write_page(out, "batch_budget", page, measured))


if __name__ == "__main__":
    typer.run(main)

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

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd
import typer

from tests.bench.options import DOCS, Out
from tests.bench.peers.inputs import write_streams
from tests.bench.peers.workloads import WORKLOADS, Streams
from tests.bench.reports import publish, table
from tests.bench.runs import (
    batches_of_stages,
    event_log,
    events_of,
    manifests_of,
    run_workload,
    write_workload,
)

MANY_KEYS = WORKLOADS["many-keys"]
#: Rows, and the batches that are left out.
LOADS = {
    "a million rows": (MANY_KEYS.streams, 8),
    "2,000 rows": (replace(MANY_KEYS.streams, rows=60_000, files=60, keys=5_000), 30),
}
#: Parts of a batch, ms: wall clock, then CPU time of our own code.
PARTS = {
    "plan": "plan: what to read, Spark's planning",
    "offsets": "offset log",
    "read": "read stage: read, filter, PACK, shuffle",
    "join": "join stage: shuffle, chain, results, manifest, state",
    "job": "the job about the stages",
    "commits": "commit log and the rest",
    "whole": "**whole batch**",
    "pack_cpu": "CPU of reading and packing, all tasks",
    "chain_cpu": "CPU of the chain, all tasks",
    "state_commit": "state commit, all tasks",
}


def batches(out: Path, log_directory: Path) -> Iterator[dict[str, float]]:
    """Yield the parts of the batches of a finished run."""
    events = list(events_of(log_directory))
    batch_of = batches_of_stages(events)
    stages: defaultdict[int, list[int]] = defaultdict(list)
    for event in events:
        if event["Event"] == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            batch = batch_of.get(info["Stage ID"], -1)
            stages[batch].append(info["Completion Time"] - info["Submission Time"])
    manifests = {m.batch: m for m in manifests_of(out)}
    for progress in (e["progress"] for e in events if e["Event"].endswith("QueryProgressEvent")):
        took, ran = progress["durationMs"], stages[progress["batchId"]]
        if len(ran) == 2 and progress["batchId"] in manifests:
            cpu = manifests[progress["batchId"]].cpu
            plan = took["latestOffset"] + took["getBatch"] + took["queryPlanning"]
            yield {
                "plan": plan,
                "offsets": took["walCommit"],
                "read": ran[0],
                "join": ran[1],
                "job": took["addBatch"] - sum(ran),
                "commits": took["triggerExecution"] - plan - took["walCommit"] - took["addBatch"],
                "whole": took["triggerExecution"],
                "pack_cpu": cpu.pack_us / 1000,
                "chain_cpu": cpu.chain_us / 1000,
                "state_commit": progress["stateOperators"][0]["commitTimeMs"],
            }


def measure(streams: Streams, first: int) -> dict[str, float]:
    """Run one load and return the medians of the parts of its batches from the first that counts, ms."""
    with tempfile.TemporaryDirectory(prefix="sluice-budget-") as directory:
        root = Path(directory)
        queries = {query.name: query.cql() for query in MANY_KEYS.queries}
        workload = write_workload(root / "workload.yaml", write_streams(root, streams), queries)
        run_workload(workload, root / "out", environment=event_log(root / "events"))
        return pd.DataFrame(batches(root / "out", root / "events")).iloc[first:].median().to_dict()


def main(out: Out = DOCS) -> None:
    """Measure both loads and write the table and its JSON."""
    measured = {name: measure(*load) for name, load in LOADS.items()}
    lines = [(text, *(m[part] for m in measured.values())) for part, text in PARTS.items()]
    text = table(("ms, medians", *measured), lines)
    typer.echo(publish(out, "batch_budget", measured, {"figures": text}))


if __name__ == "__main__":
    typer.run(main)

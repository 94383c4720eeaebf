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
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from tests.bench.peers.inputs import write_streams
from tests.bench.peers.workloads import WORKLOADS
from tests.bench.reports import table, write_page
from tests.bench.runs import batches_of_stages, event_log, events_of, manifests_of, write_workload
from tests.sluice_run import run

MANY_KEYS = WORKLOADS["many-keys"]
LOADS = {
    "a million rows": MANY_KEYS.streams,
    "2,000 rows": replace(MANY_KEYS.streams, rows=60_000, files=60, keys=5_000),
}
#: Batches left out, of each load.
FIRST = {"a million rows": 8, "2,000 rows": 30}


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
    stages: dict[int, list[int]] = {}
    for event in events:
        if event["Event"] == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            took_ms = info["Completion Time"] - info["Submission Time"]
            stages.setdefault(batch_of.get(info["Stage ID"], -1), []).append(took_ms)
    manifests = {m.batch: m for m in manifests_of(out)}
    for event in events:
        if not event["Event"].endswith("QueryProgressEvent"):
            continue
        progress = event["progress"]
        took, ran = progress["durationMs"], stages.get(progress["batchId"], [])
        manifest = manifests.get(progress["batchId"])
        if len(ran) != 2 or manifest is None:
            continue
        plan = took["latestOffset"] + took["getBatch"] + took["queryPlanning"]
        yield {
            "plan": plan,
            "offsets": took["walCommit"],
            "read": ran[0],
            "join": ran[1],
            "job": took["addBatch"] - sum(ran),
            "commits": took["triggerExecution"] - plan - took["walCommit"] - took["addBatch"],
            "whole": took["triggerExecution"],
            "pack_cpu": manifest.cpu.pack_us / 1000,
            "chain_cpu": manifest.cpu.chain_us / 1000,
            "state_commit": progress["stateOperators"][0]["commitTimeMs"],
        }


def measure(name: str, directory: Path) -> pd.Series:
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
    return pd.DataFrame(batches(data / "out", log)).iloc[FIRST[name] :].median()


def main(out: Annotated[Path, typer.Option(help="Directory of the report.")] = Path("docs/bench")) -> None:
    """Measure both loads and write the table and its JSON."""
    with tempfile.TemporaryDirectory(prefix="sluice-budget-") as directory:
        measured = {name: measure(name, Path(directory)) for name in LOADS}
    lines = [(text, *(f"{m[part]:,.0f}" for m in measured.values())) for part, text in PARTS.items()]
    head = "Written by `python -m tests.bench.batch_budget`; twelve queries of many-keys, two cores."
    text = table(("ms, medians", *measured), lines)
    figures = {name: medians.to_dict() for name, medians in measured.items()}
    page = f"# Where the time of a micro-batch goes\n\n{head}\n\n{text}"
    typer.echo(write_page(out, "batch_budget", page, figures))


if __name__ == "__main__":
    typer.run(main)

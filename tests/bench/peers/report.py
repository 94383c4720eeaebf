"""The report: the tables of peers.md, and the measurements as peers.json.

Ratios are medians of ratios that were each taken within one run: Sluice goes over the rows of each peer, in
the same run, and its rates are kept with the peer's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.bench.peers.job import KINDS
from tests.bench.peers.peers import PEERS
from tests.bench.peers.workloads import WORKLOADS
from tests.bench.reports import fill_page, read_figures, shown, table, write_figures

#: Columns that a run which failed does not have.
_NUMBERS = ("batch_p50_s", "batch_p99_s", "state_rows", "state_bytes", "peak_bytes", "results")


@dataclass(frozen=True, slots=True)
class Target:
    """What is wanted of Sluice's speed.

    Attributes:
        number: Of the target that it belongs to.
        where: Workload, or ``live``.
        says: What is bounded.
        bound: The bound.
        fast: Peer whose rate is divided by that of the fastest of ``slow``; or, without these, a column.
        slow: Peers.
        at_least: Whether more is better.
    """

    number: int
    where: str
    says: str
    bound: float
    fast: str
    slow: tuple[str, ...] = ()
    at_least: bool = False


_ONE = ("spark-one", "spark-one-x5", "spark-one-rocksdb")
_HAND = ("spark-hand", "spark-hand-x5", "spark-hand-rocksdb")
_EACH = ("spark-each", "spark-each-x5", "spark-each-rocksdb", "flink-heap", "flink-rocksdb", "pathway")


def _faster(where: str, says: str, bound: float, *slow: str, fast: str = "sluice", number: int = 1) -> Target:
    return Target(number, where, f"times faster than {says}", bound, fast, slow, at_least=True)


TARGETS = (
    _faster("many-keys", "Spark's read and shuffle in the same batches", 1.0, "spark-shuffle"),
    _faster("many-keys", "one native Spark join", 15.0, *_ONE),
    _faster("many-keys", "the best sharing by hand", 20.0, *_HAND),
    _faster("many-keys", "the best unshared peer", 60.0, *_EACH),
    Target(1, "many-keys", "times slower than DuckDB's batch join", 8.0, "duckdb", ("sluice",)),
    Target(1, "many-keys", "rows/s", 2e6, "rates.job", at_least=True),
    _faster("many-keys", "one native Spark join, own batches", 15.0, *_ONE, fast="sluice-auto"),
    _faster("many-keys", "the best sharing by hand, own batches", 20.0, *_HAND, fast="sluice-auto"),
    Target(1, "many-keys", "times slower than DuckDB, own batches", 8.0, "duckdb", ("sluice-auto",)),
    _faster("few-keys", "the best peer", 5.0, *_HAND, *_EACH, number=2),
    _faster("skew", "the best peer", 5.0, *_HAND, *_EACH, number=2),
    Target(3, "many-keys", "12 queries, time over one", 1.15, "sluice-one", ("sluice",)),
    Target(3, "sharing", "12 queries, time over one", 1.15, "sluice-one", ("sluice-12",)),
    Target(3, "sharing", "100 queries, time over one", 1.5, "sluice-one", ("sluice-100",)),
    Target(3, "sharing", "1,000 queries, time over one", 3.0, "sluice-one", ("sluice",)),
    Target(3, "ten-thousand", "10,000 queries, time over one", 2.0, "sluice-one", ("sluice",)),
    Target(4, "long-window-10", "windows 10 times as long, time over 1", 1.3, "sluice-short", ("sluice",)),
    Target(4, "long-window-100", "windows 100 times as long, time over 1", 1.69, "sluice-short", ("sluice",)),
    Target(4, "long-window-100", "8 MB of cache, time over 1 GB", 3.0, "sluice", ("sluice-small-cache",)),
    Target(5, "many-keys", "rows held over Theorem 4's", 1.05, "state_rows"),
    Target(5, "many-keys", "bytes held over plain Arrow", 1.25, "state_bytes"),
    Target(5, "selective", "rows held over Theorem 4's", 1.05, "state_rows"),
    Target(5, "selective", "bytes held over plain Arrow", 1.25, "state_bytes"),
    Target(6, "live", "latency p50 over the floor", 1.7, "p50_floors"),
    Target(6, "live", "latency p99 over the floor", 3.5, "p99_floors"),
    Target(6, "live", "floor of a micro-batch, s", 0.25, "floor_s"),
    _faster("three-streams", "the best streaming peer", 10.0, *_ONE, *_HAND, *_EACH, number=9),
    Target(9, "three-streams", "times slower than DuckDB's batch join", 10.0, "duckdb", ("sluice",)),
    Target(9, "three-streams", "12 queries, time over one", 1.3, "sluice-one", ("sluice",)),
    _faster("left", "one native Spark left outer join", 15.0, *_ONE, number=10),
)


def read_report(out: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what earlier runs measured, nothing where there are none."""
    return {"measurements": [], "live": []} | read_figures(out / "peers.json")


def add(runs: list[dict[str, Any]], found: dict[str, Any], *key: str) -> None:
    """Add a run, which takes the place of an older one of the same key."""
    runs[:] = [*(run for run in runs if any(run.get(name) != found[name] for name in key)), found]


def write_report(out: Path, report: Mapping[str, list[dict[str, Any]]]) -> str:
    """Write the measurements and the tables made of them, and return the page."""
    out.mkdir(parents=True, exist_ok=True)
    write_figures(out / "peers.json", report)
    runs, live = frame(report["measurements"]), _live_frame(report["live"])
    header = ("", "where", "what", "wanted", "whole job", "steady state")
    parts = {"setting": _setting(report), "targets": table(header, _targets(runs, live), texts=3)}
    for (workload, scale), own in _sections(runs):
        parts[workload if scale == 1 else f"{workload}, {scale:g} of the rows"] = _section(own)
    if len(live):
        parts["live"] = _live(live)
    names = [name for name in PEERS if name in set(runs["peer"])]
    parts["names"] = table(("", ""), [(name, PEERS[name].says) for name in names], texts=2)
    return fill_page(out / "peers.md", parts)


def frame(measurements: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return a row for each run of a workload and peer that there are, and ``times.job`` and the like.

    These are how many times as fast Sluice was over the same rows in the same run.
    """
    rates = [f"{of}.{kind}" for of in ("rates", "sluice") for kind in KINDS]
    known = [m for m in measurements if m["workload"] in WORKLOADS and m["peer"] in PEERS]
    columns = ("workload", "peer", "run", "bench", "scale", "share", "rows", "queries", "of_queries", "error")
    runs = pd.json_normalize(known).reindex(columns=[*columns, *_NUMBERS, *rates])
    runs = runs.astype(dict.fromkeys([*_NUMBERS, *rates], float))
    for kind in KINDS:
        runs[f"times.{kind}"] = runs[f"sluice.{kind}"] / runs[f"rates.{kind}"]
    return runs


def best(runs: pd.DataFrame, peers: Sequence[str]) -> pd.DataFrame:
    """Return the good runs of the fastest of some peers, each over the largest part of the rows it was given.

    That is not the one that Sluice beats by least: over the few rows that a slow peer is given, Sluice's own
    time is mostly its start.
    """
    good = runs[(runs["error"] == "") & runs["peer"].isin(peers)]
    largest = good[good["share"] == good.groupby("peer")["share"].transform("max")]
    fastest = largest.groupby("peer")["rates.job"].median()
    return largest[largest["peer"] == fastest.idxmax()] if len(fastest) else largest


def ratio(runs: pd.DataFrame, fast: str, slow: Sequence[str], kind: str) -> float:
    """Return how many times as fast one peer is as the fastest of some others over the same part of the rows.

    Sluice is over every part, in each run; NaN where nothing can be compared.
    """
    mine = best(runs, [fast])
    if fast == "sluice":
        return float(best(runs, slow)[f"times.{kind}"].quantile())
    if "sluice" in slow:
        return float(1 / mine[f"times.{kind}"].quantile())
    other = best(runs[runs["share"].isin(mine["share"])], slow)
    both = mine.merge(other, on=["bench", "run"])
    return float((both[f"times.{kind}_y"] / both[f"times.{kind}_x"]).quantile())


def _targets(runs: pd.DataFrame, live: pd.DataFrame) -> Iterator[tuple[object, ...]]:
    """Yield a line for each target, from the largest scale of its workload."""
    sections: dict[str, pd.DataFrame] = {}
    for (workload, _), own in _sections(runs):
        sections.setdefault(workload, own)
    nothing = frame([])
    for target in TARGETS:
        own = sections.get(target.where, nothing)
        if target.slow:
            found = [ratio(own, target.fast, target.slow, kind) for kind in ("job", "steady")]
        else:
            column = best(own, ["sluice"]) if target.where != "live" else live
            found = [column[target.fast].quantile() if len(column) else np.nan, np.nan]
        bound = f"{'≥' if target.at_least else '≤'} {target.bound:,g}"
        yield (target.number, target.where, target.says, bound, *(_mark(target, value) for value in found))


def _mark(target: Target, value: float) -> str:
    met = value >= target.bound if target.at_least else value <= target.bound
    return "–" if np.isnan(value) else f"{shown(value)} {'✓' if met else '✗'}"


def _setting(report: Mapping[str, list[dict[str, Any]]]) -> str:
    every = [*report["measurements"], *report["live"]]
    versions: dict[str, str] = {}
    for one in report["measurements"]:
        versions |= one.get("versions", {})
    named = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    machines = "; ".join(dict.fromkeys(one["machine"] for one in every))
    return f"{machines}; {named}. Medians of up to {max((one['run'] for one in every), default=0)} runs."


def _sections(runs: pd.DataFrame) -> Iterator[tuple[tuple[str, float], pd.DataFrame]]:
    """Yield the runs of each workload at each scale, larger scales first."""
    grouped = {(str(name), float(scale)): own for (name, scale), own in runs.groupby(["workload", "scale"])}
    for key in sorted(grouped, key=lambda key: (list(WORKLOADS).index(key[0]), -key[1])):
        yield key, grouped[key]


def _section(runs: pd.DataFrame) -> str:
    """Return a line for each peer over each part of the rows."""
    lines = []
    order = {name: place for place, name in enumerate(PEERS)}
    for (_, _, peer), own in runs.groupby([runs["peer"].map(order), -runs["share"], "peer"]):
        one, right = own.iloc[0], own[own["error"] == ""]
        asked = (
            f"{one.queries}" if one.queries in (0, one.of_queries) else f"{one.queries} of {one.of_queries}"
        )
        errors = "; ".join(dict.fromkeys(own["error"][own["error"] != ""])).replace("|", "/")
        head = (peer, asked, one.rows)
        if right.empty:
            lines.append((*head, f"**failed**: {errors}", *[""] * 8, 0))
            continue
        m = right.quantile(numeric_only=True)
        times = [None if peer == "sluice" else m[f"times.{kind}"] for kind in KINDS]
        # A program may be over before its memory was looked at.
        peak_gb = m["peak_bytes"] / 2**30 or None
        failed = f"{len(right)}" + (f", failed {len(own) - len(right)}: {errors}" if errors else "")
        rates = (m[f"rates.{kind}"] for kind in KINDS)
        lines.append((*head, *rates, *times, m["batch_p50_s"], m["batch_p99_s"], peak_gb, failed))
    header = (
        *("", "queries", "rows", "process, rows/s", "job", "steady"),
        *("Sluice is x times: process", "job", "steady", "batch s, p50", "p99", "memory, GB", "runs"),
    )
    return table(header, lines)


#: What is told of the service, by the names of ``live``.
_LIVE = {
    "rows_per_s": "events a second, both streams",
    "latency_p50_s": "latency, p50, s",
    "latency_p99_s": "latency, p99, s",
    "batch_s": "batch meanwhile, median, s",
    "floor_s": "floor of a micro-batch, s",
    "p50_floors": "latency, p50, in floors",
    "p99_floors": "latency, p99, in floors",
    "read": "results read, of one query",
    "results": "results of all queries, as DuckDB counts them",
}


def _live_frame(runs: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    largest = max((run.get("scale", 1.0) for run in runs), default=1.0)
    found = pd.DataFrame([r for r in runs if not r["error"] and r.get("scale", 1.0) == largest])
    if len(found):
        found["p50_floors"] = found["latency_p50_s"] / found["floor_s"]
        found["p99_floors"] = found["latency_p99_s"] / found["floor_s"]
    return found


def _live(runs: pd.DataFrame) -> str:
    header = ("", "median", *(f"run {run}" for run in runs["run"]))
    return table(header, [(text, runs[name].quantile(), *runs[name]) for name, text in _LIVE.items()])

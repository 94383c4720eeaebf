"""The scaling model: what a batch costs, term by term, and how long it takes on so many cores.

    parallel CPU   pack   = P, PV, R, columns of both                            fitted in process
                   chain  = V, segments, PV, R, R segments, pairs, columns       fitted in process
                   Spark  = P, S, V, PS, PV, bytes shuffled                      fitted in the job
    serial time    driver = 1, P, S, V                                           fitted in the job
    batch          = serial + parallel CPU times imbalance / cores + bytes over the network

R rows of a batch, P pieces of input, V buckets, S tasks of the chain. Each constant is fitted by non-negative
least squares of relative errors (``service.calibrate.fit``), so none makes up for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from service.calibrate.fit import relative_nnls

#: Seconds for each of a term, by part and term.
Model = Mapping[str, Mapping[str, float]]
#: How many of a term a batch has; of one batch, or of many as columns of a frame.
Term = Callable[[Any], Any]

TERMS: Mapping[str, Mapping[str, Term]] = {
    "pack": {
        "piece": lambda x: x.partitions,
        "payload": lambda x: x.partitions * x.buckets,
        "payload's column": lambda x: x.partitions * x.buckets * x.carried,
        "row": lambda x: x.rows,
        "value": lambda x: x.rows * x.carried,
    },
    "chain": {
        "bucket": lambda x: x.buckets,
        "segment": lambda x: x.segments,
        "segment's column": lambda x: x.segments * 2 * x.carried,
        "payload": lambda x: x.partitions * x.buckets,
        "row": lambda x: x.rows,
        "row and segment": lambda x: x.rows * x.segments / x.buckets,
        "value": lambda x: x.rows * x.carried,
        "pair": lambda x: x.results,
        "value of a pair": lambda x: x.results * 2 * x.carried,
    },
    "spark": {
        "piece": lambda x: x.partitions,
        "task": lambda x: x.tasks,
        "bucket": lambda x: x.buckets,
        "block": lambda x: x.partitions * x.tasks,
        "payload": lambda x: x.partitions * x.buckets,
        "byte": lambda x: x.shuffled_bytes,
    },
    "serial": {
        "batch": lambda x: 0 * x.buckets + 1,
        "piece": lambda x: x.partitions,
        "task": lambda x: x.tasks,
        "bucket": lambda x: x.buckets,
    },
}
PARALLEL = ("pack", "chain", "spark")


@dataclass(frozen=True, slots=True)
class Load:
    """What a batch is, as far as the model knows; frames of measurements have the same columns."""

    rows: float
    partitions: float
    buckets: float
    tasks: float
    carried: float
    results: float
    segments: float
    shuffled_bytes: float


def cost_s(model: Model, load: Any, *parts: str) -> Any:
    """Return the seconds of some parts, of one load or of each row of a frame."""
    return sum(model[part][name] * term(load) for part in parts for name, term in TERMS[part].items())


def batch_s(model: Model, cases: Any) -> Any:
    """Return the seconds from commit to commit, without a network; cores and buckets are all as busy."""
    return cost_s(model, cases, "serial") + cost_s(model, cases, *PARALLEL) / cases.cores


def transport_s(seen: pd.DataFrame) -> pd.Series:
    """Return CPU seconds in tasks that are not our own code: spent on whichever core runs the task."""
    return (seen.workers_s + seen.tasks_s - seen.pack_s - seen.chain_s).clip(lower=0.0)


def fitted(own: pd.DataFrame, seen: pd.DataFrame) -> Model:
    """Fit all constants.

    Args:
        own: Points in process.
        seen: Phases of the job.
    """
    # What is left of the clock when tasks have had the cores; weighed by all of the batch's time.
    rest = seen.wall_s - (seen.pack_s + seen.chain_s + transport_s(seen)) / seen.cores
    found, _ = nnls(
        _works("serial", seen) / seen.wall_s.to_numpy()[:, None], rest.clip(lower=0.0) / seen.wall_s
    )
    return {
        "pack": _fit("pack", own, own.pack_s),
        "chain": _fit("chain", own, own.chain_s),
        "spark": _fit("spark", seen, transport_s(seen).clip(lower=1e-4)),
        "serial": dict(zip(TERMS["serial"], found.tolist(), strict=True)),
    }


def _works(part: str, cases: pd.DataFrame) -> np.ndarray:
    return np.column_stack([term(cases).to_numpy(np.float64) for term in TERMS[part].values()])


def _fit(part: str, cases: pd.DataFrame, seconds: pd.Series) -> dict[str, float]:
    found = relative_nnls(_works(part, cases), seconds.to_numpy(np.float64))
    return dict(zip(TERMS[part], found.tolist(), strict=True))


def left_out(own: pd.DataFrame, seen: pd.DataFrame, others: pd.DataFrame) -> pd.DataFrame:
    """Predict every point from all others, every run from the other runs, and runs of other masters.

    Args:
        own: Points in process.
        seen: Phases that the model is fitted to.
        others: Phases that it is not fitted to.

    Returns:
        Columns ``name``, ``what`` (pack, chain, cpu: all tasks; batch: by the clock), ``predicted_s`` and
        ``measured_s``.
    """
    found: list[tuple[str, str, float, float]] = []
    for number in own.index:
        one, rest = own.loc[number], own.drop(number)
        for part in ("pack", "chain"):
            constants = {part: _fit(part, rest, rest[f"{part}_s"])}
            found.append((one["name"], part, cost_s(constants, one, part), one[f"{part}_s"]))
    every = fitted(own, seen)
    models = {run: fitted(own, seen[seen.run != run]) for run in seen.run.unique()}
    for run, phases in pd.concat([seen, others]).groupby("run", sort=False):
        model = models.get(run, every)
        cpu_s = phases.pack_s + phases.chain_s + transport_s(phases)
        found += zip(phases.name, ["cpu"] * len(phases), cost_s(model, phases, *PARALLEL), cpu_s, strict=True)
        found += zip(phases.name, ["batch"] * len(phases), batch_s(model, phases), phases.wall_s, strict=True)
    return pd.DataFrame(found, columns=["name", "what", "predicted_s", "measured_s"])


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that nobody has measured: what is assumed of it.

    Attributes:
        cores: Cores of all executors; the driver has one of its own.
        cores_per_node: Cores of a machine.
        network_bytes_per_s: What a machine sends, and receives, in a second.
        buckets_per_core: V over the cores.
        bucket_deviation: Standard deviation of what buckets take, relative to the mean.
    """

    cores: int
    cores_per_node: int = 16
    network_bytes_per_s: float = 1.25e9
    buckets_per_core: int = 4
    bucket_deviation: float = 0.0

    @property
    def imbalance(self) -> float:
        """How much longer the last of the chain's tasks takes than the mean: the largest of so many sums."""
        deviation = self.bucket_deviation / np.sqrt(self.buckets_per_core)
        return float(1.0 + deviation * np.sqrt(2.0 * np.log(max(self.cores, 2))))

    def network_s(self, shuffled_bytes: float) -> float:
        """Seconds for the bytes that go to another machine, all machines sending at once."""
        nodes = -(-self.cores // self.cores_per_node)
        return shuffled_bytes * (1.0 - 1.0 / nodes) / (nodes * self.network_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A batch on a cluster: seconds of its parts, all cores at once."""

    cluster: Cluster
    load: Load
    serial_s: float
    own_s: float
    spark_s: float
    waiting_s: float
    network_s: float

    @property
    def batch_s(self) -> float:
        """Seconds of a batch."""
        return self.serial_s + self.own_s + self.spark_s + self.waiting_s + self.network_s

    @property
    def rows_per_s(self) -> float:
        """Throughput."""
        return self.load.rows / self.batch_s


@dataclass(frozen=True, slots=True)
class Shape:
    """What the predicted load has besides rows.

    Attributes:
        matches: Pairs per row.
        segments_per_bucket: Segments that a bucket holds.
        bytes_per_row: Shuffled bytes of a row.
        bytes_per_payload: Shuffled bytes of a payload besides its rows.
        rows_per_piece: Rows of a piece of input; None makes a piece for each core.
    """

    matches: float
    segments_per_bucket: float
    bytes_per_row: float
    bytes_per_payload: float
    rows_per_piece: float | None = None


def predicted(model: Model, cluster: Cluster, shape: Shape, rows: float) -> Prediction:
    """Predict a batch of so many rows."""
    buckets, cores = float(cluster.cores * cluster.buckets_per_core), float(cluster.cores)
    pieces = cores if shape.rows_per_piece is None else max(rows / shape.rows_per_piece, 2.0)
    load = Load(
        rows=rows,
        partitions=pieces,
        buckets=buckets,
        tasks=cores,
        carried=0.0,
        results=rows * shape.matches,
        segments=buckets * shape.segments_per_bucket,
        shuffled_bytes=rows * shape.bytes_per_row + pieces * buckets * shape.bytes_per_payload,
    )
    # With fewer pieces than cores, some have nothing to read.
    idle = max(cores / pieces, 1.0)
    own_s = (cost_s(model, load, "pack") * idle + cost_s(model, load, "chain")) / cores
    spark_s = cost_s(model, load, "spark") / cores
    return Prediction(
        cluster,
        load,
        serial_s=cost_s(model, load, "serial"),
        own_s=own_s,
        spark_s=spark_s,
        waiting_s=(own_s + spark_s) * (cluster.imbalance - 1.0),
        network_s=cluster.network_s(load.shuffled_bytes),
    )


def at_interval(model: Model, cluster: Cluster, shape: Shape, seconds: float) -> Prediction | None:
    """Return the largest batch that takes no longer than an interval; None if an empty one already does."""
    if predicted(model, cluster, shape, 1.0).batch_s >= seconds:
        return None
    low, high = 1.0, 1e13
    for _ in range(100):
        middle = (low * high) ** 0.5
        low, high = (
            (middle, high) if predicted(model, cluster, shape, middle).batch_s < seconds else (low, middle)
        )
    return predicted(model, cluster, shape, low)


def with_driver(model: Model, *, bucket_s: float, piece_s: float) -> Model:
    """Return the model with what a bucket and a piece cost the driver, where that was measured by itself.

    In the job these are too small to be told from the rest; the larger of both counts.
    """
    serial = model["serial"]
    larger = {"bucket": max(serial["bucket"], bucket_s), "piece": max(serial["piece"], piece_s)}
    return {**model, "serial": {**serial, **larger}}

"""The scaling model: what a batch costs, term by term, and how long it takes on so many cores.

    parallel CPU   pack   = P, PV, R, columns carried along
                   chain  = V, PV, R, columns
                   Spark  = P, S, V, PS, PV, bytes shuffled
    serial time    driver = 1, P, S, V
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
TERMS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "pack": {
        "piece of input (P)": lambda x: x.partitions,
        "payload (P times V)": lambda x: x.partitions * x.buckets,
        "row (R)": lambda x: x.rows,
        "value carried along": lambda x: x.rows * x.carried,
    },
    "chain": {
        "bucket (V)": lambda x: x.buckets,
        "payload (P times V)": lambda x: x.partitions * x.buckets,
        "row (R)": lambda x: x.rows,
        "value carried along": lambda x: x.rows * x.carried,
    },
    "spark": {
        "piece of input (P)": lambda x: x.partitions,
        "task of the chain (S)": lambda x: x.tasks,
        "bucket (V)": lambda x: x.buckets,
        "shuffle block (P times S)": lambda x: x.partitions * x.tasks,
        "payload (P times V)": lambda x: x.partitions * x.buckets,
        "byte shuffled": lambda x: x.shuffled_bytes,
    },
    "serial": {
        "batch": lambda x: 0 * x.buckets + 1,
        "piece of input (P)": lambda x: x.partitions,
        "task of the chain (S)": lambda x: x.tasks,
        "bucket (V)": lambda x: x.buckets,
    },
}
PARALLEL = ("pack", "chain", "spark")
#: Cores of a machine, what it sends and receives in a second, and buckets of a core.
CORES_PER_NODE, NETWORK_BYTES_PER_S, BUCKETS_PER_CORE = 16, 1.25e9, 4


@dataclass(frozen=True, slots=True)
class Load:
    """What a batch is, as far as the model knows; frames of measurements have the same columns."""

    rows: float
    partitions: float
    buckets: float
    tasks: float
    carried: float
    shuffled_bytes: float


def cost_s(model: Model, load: Any, *parts: str) -> Any:
    """Return the seconds of some parts, of one load or of each row of a frame."""
    return sum(model[part][name] * term(load) for part in parts for name, term in TERMS[part].items())


def batch_s(model: Model, cases: Any) -> Any:
    """Return the seconds from commit to commit, without a network; cores and buckets are all as busy."""
    return cost_s(model, cases, "serial") + cost_s(model, cases, *PARALLEL) / cases.cores


def fitted(seen: pd.DataFrame) -> Model:
    """Fit all constants to phases of the job."""
    # CPU time in tasks that is not our own code's; what is left of the clock when tasks have had the cores.
    spark_s = (seen.workers_s + seen.tasks_s - seen.pack_s - seen.chain_s).clip(lower=1e-4)
    rest_s = seen.wall_s - (seen.pack_s + seen.chain_s + spark_s) / seen.cores
    works = {
        part: np.column_stack([term(seen).to_numpy(np.float64) for term in terms.values()])
        for part, terms in TERMS.items()
    }
    # The rest is weighed by all of the batch's time.
    weighed = works["serial"] / seen.wall_s.to_numpy()[:, None]
    found = {
        "pack": relative_nnls(works["pack"], seen.pack_s.to_numpy()),
        "chain": relative_nnls(works["chain"], seen.chain_s.to_numpy()),
        "spark": relative_nnls(works["spark"], spark_s.to_numpy()),
        "serial": nnls(weighed, rest_s.clip(lower=0.0) / seen.wall_s)[0],
    }
    return {part: dict(zip(TERMS[part], each.tolist(), strict=True)) for part, each in found.items()}


@dataclass(frozen=True, slots=True)
class Shape:
    """What the predicted load has besides rows, and how it is set.

    Attributes:
        bytes_per_row: Shuffled bytes of a row.
        bytes_per_payload: Shuffled bytes of a payload besides its rows.
        bucket_deviation: Standard deviation of what buckets of a batch take, relative to the mean.
        buckets_per_core: V over the cores.
        rows_per_piece: Rows of a piece of input; None makes a piece for each core.
    """

    bytes_per_row: float
    bytes_per_payload: float
    bucket_deviation: float
    buckets_per_core: int = BUCKETS_PER_CORE
    rows_per_piece: float | None = None

    @classmethod
    def of(cls, seen: pd.DataFrame) -> Shape:
        """Take it from phases of the job; the hottest of n buckets is about sqrt(2 ln n) deviations above."""
        terms = np.column_stack([seen.rows, seen.rows * seen.carried, seen.partitions * seen.buckets])
        shuffled = seen.shuffled_bytes.to_numpy()[:, None]
        (per_row, _, per_payload), _ = nnls(terms / shuffled, np.ones(len(seen)))
        large = seen[seen.rows >= seen.rows.max() / 2]
        most = large.buckets.max()
        above = large[large.buckets == most].hottest.median() - 1.0
        return cls(float(per_row), float(per_payload), float(above / np.sqrt(2.0 * np.log(max(most, 2)))))


def predicted(model: Model, cores: int, shape: Shape, rows: float) -> dict[str, float]:
    """Predict a batch of so many rows on so many cores, the driver beside them: seconds of its parts."""
    buckets = float(cores * shape.buckets_per_core)
    pieces = float(cores) if shape.rows_per_piece is None else max(rows / shape.rows_per_piece, 2.0)
    shuffled_bytes = rows * shape.bytes_per_row + pieces * buckets * shape.bytes_per_payload
    load = Load(rows, pieces, buckets, float(cores), 0.0, shuffled_bytes)
    # With fewer pieces than cores, some have nothing to read.
    idle = max(cores / pieces, 1.0)
    own_s = (cost_s(model, load, "pack") * idle + cost_s(model, load, "chain")) / cores
    spark_s = cost_s(model, load, "spark") / cores
    # The last of the chain's tasks is the largest of so many sums of buckets.
    deviation = shape.bucket_deviation / np.sqrt(shape.buckets_per_core)
    # Bytes that go to another machine, all machines sending at once.
    nodes = -(-cores // CORES_PER_NODE)
    parts = {
        "the driver": cost_s(model, load, "serial"),
        "our own code": own_s,
        "Spark's part of the tasks": spark_s,
        "waiting for the last task": (own_s + spark_s) * deviation * np.sqrt(2.0 * np.log(max(cores, 2))),
        "the network": shuffled_bytes * (1.0 - 1.0 / nodes) / (nodes * NETWORK_BYTES_PER_S),
    }
    return {name: float(seconds) for name, seconds in parts.items()}


def rows_at(model: Model, cores: int, shape: Shape, interval_s: float) -> float | None:
    """Return the rows of the largest batch that takes no longer; None if an empty one already does."""
    low, high = 1.0, 1e13
    if sum(predicted(model, cores, shape, low).values()) >= interval_s:
        return None
    for _ in range(100):
        middle = (low * high) ** 0.5
        if sum(predicted(model, cores, shape, middle).values()) < interval_s:
            low = middle
        else:
            high = middle
    return low

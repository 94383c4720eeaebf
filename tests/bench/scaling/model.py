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

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from service.calibrate.fit import relative_nnls
from tests.bench.scaling.in_process import Own
from tests.bench.scaling.in_spark import Seen

Terms = Mapping[str, float]
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Load:
    """What a batch is, as far as the model knows.

    Attributes:
        rows: R.
        partitions: P.
        buckets: V.
        tasks: S.
        columns: Columns carried along of each stream.
        results: Pairs made.
        segments: Segments held, all buckets.
        shuffled_bytes: Bytes between reading and joining.
    """

    rows: float
    partitions: float
    buckets: float
    tasks: float
    columns: float
    results: float
    segments: float
    shuffled_bytes: float


def pack_terms(load: Load) -> Terms:
    """Return what reading and packing does."""
    return {
        "piece": load.partitions,
        "payload": load.partitions * load.buckets,
        "payload's column": load.partitions * load.buckets * load.columns,
        "row": load.rows,
        "value": load.rows * load.columns,
    }


def chain_terms(load: Load) -> Terms:
    """Return what the chains do."""
    return {
        "bucket": load.buckets,
        "segment": load.segments,
        "segment's column": load.segments * 2 * load.columns,
        "payload": load.partitions * load.buckets,
        "row": load.rows,
        "row and segment": load.rows * load.segments / load.buckets,
        "value": load.rows * load.columns,
        "pair": load.results,
        "value of a pair": load.results * 2 * load.columns,
    }


def spark_terms(load: Load) -> Terms:
    """Return what tasks do that is not our own code."""
    return {
        "piece": load.partitions,
        "task": load.tasks,
        "bucket": load.buckets,
        "block": load.partitions * load.tasks,
        "payload": load.partitions * load.buckets,
        "byte": load.shuffled_bytes,
    }


def serial_terms(load: Load) -> Terms:
    """Return what the driver does while no task runs."""
    return {"batch": 1.0, "piece": load.partitions, "task": load.tasks, "bucket": load.buckets}


@dataclass(frozen=True, slots=True)
class Model:
    """Constants, seconds each.

    Attributes:
        pack: Of ``pack_terms``.
        chain: Of ``chain_terms``.
        spark: Of ``spark_terms``.
        serial: Of ``serial_terms``.
    """

    pack: Terms
    chain: Terms
    spark: Terms
    serial: Terms

    def own_s(self, load: Load) -> float:
        """CPU seconds of our own code."""
        return priced(self.pack, pack_terms(load)) + priced(self.chain, chain_terms(load))

    def parallel_s(self, load: Load) -> float:
        """CPU seconds of tasks, ours and Spark's."""
        return self.own_s(load) + priced(self.spark, spark_terms(load))

    def serial_s(self, load: Load) -> float:
        """Seconds in which no task runs."""
        return priced(self.serial, serial_terms(load))

    def batch_s(self, load: Load, cores: float, imbalance: float = 1.0) -> float:
        """Seconds from commit to commit, without a network."""
        return self.serial_s(load) + self.parallel_s(load) * imbalance / cores


def priced(constants: Terms, terms: Terms) -> float:
    """Return what terms come to."""
    return sum(constants[name] * count for name, count in terms.items())


def fitted(own: Sequence[Own], seen: Sequence[Seen]) -> Model:
    """Fit all constants.

    Args:
        own: Points in process.
        seen: Phases of the job.
    """
    pack = _fit([pack_terms(load_of(o)) for o in own], [o.pack_s for o in own])
    chain = _fit([chain_terms(load_of(o)) for o in own], [o.chain_s for o in own])
    spark = _fit([spark_terms(load_seen(s)) for s in seen], [max(s.transport_s, 1e-4) for s in seen])
    # What is left of the clock when tasks have had the cores; weighed by all of the batch's time.
    rest = [s.wall_s - (s.pack_s + s.chain_s + s.transport_s) / cores_of(s) for s in seen]
    terms = [serial_terms(load_seen(s)) for s in seen]
    rows = np.array([list(t.values()) for t in terms]) / np.array([[s.wall_s] for s in seen])
    found, _ = nnls(rows, np.maximum(rest, 0.0) / np.array([s.wall_s for s in seen]))
    return Model(pack, chain, spark, dict(zip(terms[0], found.tolist(), strict=True)))


def _fit(terms: Sequence[Terms], seconds: Sequence[float]) -> Terms:
    works = np.array([list(t.values()) for t in terms], dtype=np.float64)
    found = relative_nnls(works, np.array(seconds))
    return dict(zip(terms[0], found.tolist(), strict=True))


def load_of(own: Own) -> Load:
    """Return the load of a point in process; nothing is shuffled there."""
    point = own.point
    return Load(
        rows=point.rows,
        partitions=point.partitions,
        buckets=point.buckets,
        tasks=point.buckets,
        columns=point.columns,
        results=own.results,
        segments=own.segments,
        shuffled_bytes=0.0,
    )


def load_seen(seen: Seen) -> Load:
    """Return the load of a phase."""
    return Load(
        rows=seen.phase.batch_rows,
        partitions=seen.phase.partitions,
        buckets=seen.run.buckets,
        tasks=seen.run.tasks,
        columns=seen.run.columns,
        results=seen.results,
        segments=seen.segments,
        shuffled_bytes=seen.shuffled_bytes,
    )


def cores_of(seen: Seen) -> int:
    """Return how many tasks run at a time."""
    master = seen.run.master
    if master.startswith("local-cluster["):
        executors, cores, _ = master.removeprefix("local-cluster[").rstrip("]").split(",")
        return int(executors) * int(cores)
    return int(master.removeprefix("local[").rstrip("]"))


@dataclass(frozen=True, slots=True)
class Checked:
    """A prediction by a model that has not seen what it is held against.

    Attributes:
        name: Point or phase.
        what: ``pack``, ``chain``, ``cpu`` (all of the tasks) or ``batch`` (the clock).
        predicted_s: Seconds.
        measured_s: Seconds.
    """

    name: str
    what: str
    predicted_s: float
    measured_s: float

    @property
    def error(self) -> float:
        """Relative error."""
        return self.predicted_s / self.measured_s - 1.0


def left_out(own: Sequence[Own], seen: Sequence[Seen], others: Sequence[Seen] = ()) -> list[Checked]:
    """Predict every point from all others, every run from the other runs, and runs of other masters.

    Args:
        own: Points in process.
        seen: Phases that the model is fitted to.
        others: Phases that it is not fitted to.
    """
    found: list[Checked] = []
    for number, point in enumerate(own):
        rest = [o for n, o in enumerate(own) if n != number]
        for what, terms_of, measured in (
            ("pack", pack_terms, lambda o: o.pack_s),
            ("chain", chain_terms, lambda o: o.chain_s),
        ):
            found.append(_checked_point(what, terms_of, measured, rest, point))
    for run in dict.fromkeys(s.run for s in seen):
        model = fitted(own, [s for s in seen if s.run != run])
        found += [c for s in seen if s.run == run for c in _checked_phase(model, s)]
    model = fitted(own, seen)
    return found + [c for s in others for c in _checked_phase(model, s)]


def _checked_point(
    what: str,
    terms_of: Callable[[Load], Terms],
    measured: Callable[[Own], float],
    rest: Sequence[Own],
    point: Own,
) -> Checked:
    constants = _fit([terms_of(load_of(o)) for o in rest], [measured(o) for o in rest])
    return Checked(point.point.name, what, priced(constants, terms_of(load_of(point))), measured(point))


def _checked_phase(model: Model, seen: Seen) -> list[Checked]:
    load, cores = load_seen(seen), cores_of(seen)
    name = f"{seen.run.name}: R={load.rows:,.0f} P={load.partitions:.0f}"
    cpu_s = seen.pack_s + seen.chain_s + seen.transport_s
    return [
        Checked(name, "cpu", model.parallel_s(load), cpu_s),
        Checked(name, "batch", model.batch_s(load, cores), seen.wall_s),
    ]


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
    def nodes(self) -> int:
        """Machines."""
        return -(-self.cores // self.cores_per_node)

    @property
    def imbalance(self) -> float:
        """How much longer the last of the chain's tasks takes than the mean: the largest of so many sums."""
        deviation = self.bucket_deviation / np.sqrt(self.buckets_per_core)
        return float(1.0 + deviation * np.sqrt(2.0 * np.log(max(self.cores, 2))))

    def network_s(self, shuffled_bytes: float) -> float:
        """Seconds for the bytes that go to another machine, all machines sending at once."""
        return shuffled_bytes * (1.0 - 1.0 / self.nodes) / (self.nodes * self.network_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Prediction:
    """A batch on a cluster.

    Attributes:
        cluster: The cluster.
        load: The batch.
        serial_s: No task runs.
        own_s: Reading, packing, joining, on all cores at once.
        spark_s: Spark's part of the tasks, on all cores at once.
        waiting_s: Cores wait for the last task.
        network_s: Bytes on their way.
    """

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
    buckets = float(cluster.cores * cluster.buckets_per_core)
    pieces = float(cluster.cores) if shape.rows_per_piece is None else max(rows / shape.rows_per_piece, 2.0)
    load = Load(
        rows=rows,
        partitions=pieces,
        buckets=buckets,
        tasks=float(cluster.cores),
        columns=0.0,
        results=rows * shape.matches,
        segments=buckets * shape.segments_per_bucket,
        shuffled_bytes=rows * shape.bytes_per_row + pieces * buckets * shape.bytes_per_payload,
    )
    # With fewer pieces than cores, some have nothing to read.
    idle = max(cluster.cores / pieces, 1.0)
    read_s = priced(model.pack, pack_terms(load)) * idle
    own_s = (read_s + priced(model.chain, chain_terms(load))) / cluster.cores
    spark_s = priced(model.spark, spark_terms(load)) / cluster.cores
    return Prediction(
        cluster,
        load,
        serial_s=model.serial_s(load),
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
    serial = dict(model.serial)
    serial["bucket"] = max(serial["bucket"], bucket_s)
    serial["piece"] = max(serial["piece"], piece_s)
    return replace(model, serial=serial)

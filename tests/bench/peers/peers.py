"""The peers by name: what each one runs, what it is given of the queries, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.bench.peers.workloads import Workload


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine with its settings.

    Attributes:
        name: Name on the command line.
        says: What it is, for the report.
        queries: Most queries that it is given; None: all of them.
        rows_per_s: What it does of many-keys, roughly, on two cores: its part of the rows rests on that.
        program: Module that runs it; none for Sluice, which is run as its users do.
        environment: Virtual environment of its own; empty means that of the project.
        of: Workload whose rows and queries it is given; empty means the one it is run in.
        options: For the program.
    """

    name: str
    says: str
    queries: int | None
    rows_per_s: float = 1_000_000
    program: str = ""
    environment: str = ""
    of: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def _sluice(name: str, says: str, queries: int | None = None, of: str = "", **options: Any) -> Peer:
    return Peer(name, says, queries, of=of, options=options)


def _spark(name: str, says: str, queries: int | None, rows_per_s: float, **options: Any) -> Peer:
    options = {"rocksdb": False, "files_per_batch": 1, "by_hand": queries is None} | options
    kept = "RocksDB, state format 4" if options["rocksdb"] else "default state store"
    many = options["files_per_batch"]
    says = f"{says}; {kept}" + (f", batches {many} times as large" if many > 1 else "")
    return Peer(name, says, queries, rows_per_s, program="spark_join", options=options)


def _flink(name: str, says: str, queries: int, rows_per_s: float, state: str) -> Peer:
    return Peer(
        name, says, queries, rows_per_s, program="flink_join", environment="flink", options={"state": state}
    )


_LARGEST = "one native join of the largest window alone"
_BY_HAND = "one native join of the largest window, a filter per query"
_EACH = "a native join, and a streaming query, for each query"
_FLINK = "Flink SQL, an interval join for each query in one StatementSet"
#: Queries of a peer with a join for each.
JOINS = 12

PEERS = {
    peer.name: peer
    for peer in (
        _sluice("sluice", "`sluice run --results shared`, all queries"),
        _sluice("sluice-auto", "the same, batches as large as Sluice chooses", files_per_batch=None),
        _sluice("sluice-100", "Sluice, a hundred of the queries", 100),
        _sluice("sluice-12", "Sluice, twelve of the queries", 12),
        _sluice("sluice-one", "Sluice, the largest window alone", 1),
        _sluice("sluice-short", "Sluice on `long-window-1`", of="long-window-1"),
        _sluice(
            "sluice-small-cache",
            "Sluice whose workers keep 8 MB of segments, the smallest part of the state",
            environment={"SLUICE_CACHE_MB": "8"},
        ),
        _spark("spark-one", _LARGEST, 1, 110_000),
        _spark("spark-one-x5", _LARGEST, 1, 130_000, files_per_batch=5),
        _spark("spark-one-rocksdb", _LARGEST, 1, 60_000, rocksdb=True),
        _spark("spark-hand", _BY_HAND, None, 110_000),
        _spark("spark-hand-x5", _BY_HAND, None, 150_000, files_per_batch=5),
        _spark("spark-hand-rocksdb", _BY_HAND, None, 45_000, rocksdb=True),
        _spark("spark-each", _EACH, JOINS, 12_000),
        _spark("spark-each-x5", _EACH, JOINS, 20_000, files_per_batch=5),
        _spark("spark-each-rocksdb", _EACH, JOINS, 10_000, rocksdb=True),
        _flink("flink-heap", f"{_FLINK}; state on the heap", JOINS, 10_000, "hashmap"),
        _flink("flink-rocksdb", f"{_FLINK}; state in RocksDB", JOINS, 1_500, "rocksdb"),
        Peer(
            "pathway",
            "Pathway, an `interval_join` for each query in one graph; every row is kept",
            JOINS,
            10_000,
            program="pathway_join",
            environment="pathway",
        ),
        Peer("duckdb", "DuckDB's batch join, all queries counted from it", None, 5e6, program="batch_join"),
        Peer(
            "spark-shuffle",
            "Spark, rows read and shuffled by key in the same batches; no join",
            0,
            program="spark_join",
            options={"rocksdb": False},
        ),
        _flink("flink-read", "Flink, CSV read, parsed and counted; no join", 0, 500_000, "hashmap"),
    )
}

#: What every peer is compared with.
REFERENCE = PEERS["sluice"]
#: Run where a workload names them, not where it names nobody.
_NAMED = ("sluice-100", "sluice-12", "sluice-short", "sluice-small-cache")
SHARES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)


def peers_of(workload: Workload) -> list[Peer]:
    """Return who runs a workload where nobody is named."""
    names = workload.peers or [name for name in PEERS if name not in _NAMED]
    return [PEERS[name] for name in names]


def share_of(workload: Workload, peer: Peer) -> float:
    """Return the part of the workload's rows that a peer does in the time that is enough.

    It rests on rates written down once, not on this machine's, so that it is the same in every bench.
    """
    rows_per_s = workload.rows_per_s.get(peer.name, peer.rows_per_s / workload.weight)
    wanted_s = workload.streams.count * workload.streams.rows / rows_per_s
    return next((share for share in SHARES if wanted_s * share <= workload.enough_s), SHARES[-1])

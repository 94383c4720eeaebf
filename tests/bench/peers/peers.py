"""The peers by name: what each one runs, what it is given of the queries, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.bench.peers.workloads import Sharing, Workload

Kind = Literal["sluice", "peer", "limit"]


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine with its settings.

    Attributes:
        name: Name on the command line.
        says: What it is, for the report.
        kind: Sluice, a peer, or a limit: something that is no stream join, or none at all.
        sharing: What it is given of the queries.
        rows_per_s: What it does of many-keys, roughly, on two cores: its part of the rows rests on that.
        program: Module that runs it; none for Sluice, which is run as its users do.
        environment: Virtual environment of its own; empty means that of the project.
        of: Workload whose rows and queries it is given; empty means the one it is run in.
        options: For the program.
    """

    name: str
    says: str
    kind: Kind
    sharing: Sharing
    rows_per_s: float
    program: str = ""
    environment: str = ""
    of: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def _sluice(name: str, says: str, sharing: Sharing = "all", of: str = "", **options: Any) -> Peer:
    return Peer(name, says, "sluice", sharing, 1_000_000, of=of, options=options)


def _spark(
    name: str, says: str, sharing: Sharing, rows_per_s: float, *, rocksdb: bool = False, files: int = 1
) -> Peer:
    kept = "RocksDB, state format 4" if rocksdb else "default state store"
    size = "" if files == 1 else f", batches {files} times as large"
    return Peer(
        name=name,
        says=f"{says}; {kept}{size}",
        kind="peer",
        sharing=sharing,
        rows_per_s=rows_per_s,
        program="spark_join",
        options={"sharing": sharing, "rocksdb": rocksdb, "files_per_batch": files},
    )


def _flink(
    name: str, says: str, state: str, rows_per_s: float, kind: Kind = "peer", sharing: Sharing = "each"
) -> Peer:
    return Peer(
        name=name,
        says=says,
        kind=kind,
        sharing=sharing,
        rows_per_s=rows_per_s,
        program="flink_join",
        environment="flink",
        options={"state": state},
    )


def _shuffle(name: str, says: str, *, streaming: bool) -> Peer:
    options = {"streaming": streaming}
    return Peer(name, says, "limit", "none", 1_000_000, program="spark_shuffle", options=options)


_LARGEST = "one native join of the largest window alone"
_BY_HAND = "one native join of the largest window, a filter per query"
_EACH = "a native join, and a streaming query, for each query"
_FLINK = "Flink SQL, an interval join for each query in one StatementSet"
_SHUFFLE = "Spark, rows read and shuffled by key"

PEERS = {
    peer.name: peer
    for peer in (
        _sluice("sluice", "`sluice run --results shared`, all queries"),
        _sluice("sluice-auto", "the same, batches as large as Sluice chooses", files_per_batch=None),
        _sluice("sluice-100", "Sluice, a hundred of the queries", "hundred"),
        _sluice("sluice-12", "Sluice, twelve of the queries", "twelve"),
        _sluice("sluice-one", "Sluice, the largest window alone", "largest"),
        _sluice("sluice-short", "Sluice on `long-window-1`", of="long-window-1"),
        _sluice(
            "sluice-small-cache",
            "Sluice whose workers keep 8 MB of segments, the smallest part of the state",
            environment={"SLUICE_CACHE_MB": "8"},
        ),
        _spark("spark-one", _LARGEST, "largest", 110_000),
        _spark("spark-one-x5", _LARGEST, "largest", 130_000, files=5),
        _spark("spark-one-rocksdb", _LARGEST, "largest", 60_000, rocksdb=True),
        _spark("spark-hand", _BY_HAND, "hand", 110_000),
        _spark("spark-hand-x5", _BY_HAND, "hand", 150_000, files=5),
        _spark("spark-hand-rocksdb", _BY_HAND, "hand", 45_000, rocksdb=True),
        _spark("spark-each", _EACH, "each", 12_000),
        _spark("spark-each-x5", _EACH, "each", 20_000, files=5),
        _spark("spark-each-rocksdb", _EACH, "each", 10_000, rocksdb=True),
        _flink("flink-heap", f"{_FLINK}; state on the heap", "hashmap", 10_000),
        _flink("flink-rocksdb", f"{_FLINK}; state in RocksDB", "rocksdb", 1_500),
        Peer(
            name="pathway",
            says="Pathway, an `interval_join` for each query in one graph; every row is kept",
            kind="peer",
            sharing="each",
            rows_per_s=10_000,
            program="pathway_join",
            environment="pathway",
        ),
        Peer(
            name="duckdb",
            says="DuckDB's batch join, all queries counted from it",
            kind="limit",
            sharing="all",
            rows_per_s=5_000_000,
            program="batch_join",
        ),
        _shuffle("spark-shuffle", f"{_SHUFFLE} in the same batches; no join", streaming=True),
        _shuffle("spark-shuffle-batch", f"{_SHUFFLE} in one batch; no join", streaming=False),
        _flink(
            "flink-read", "Flink, CSV read, parsed and counted; no join", "hashmap", 500_000, "limit", "none"
        ),
    )
}

#: What every peer is compared with.
REFERENCE = PEERS["sluice"]
#: Run where a workload names them, not where it names nobody.
_NAMED = ("sluice-100", "sluice-12", "sluice-short", "sluice-small-cache")
#: Run of the other workloads with ``--quick``: enough to see that these work.
_QUICK = ("sluice", "spark-hand", "duckdb")


def peers_of(workload: Workload, *, quick: bool) -> list[Peer]:
    """Return who runs a workload where nobody is named."""
    if not workload.peers:
        return [peer for peer in PEERS.values() if peer.name not in _NAMED]
    peers = [PEERS[name] for name in workload.peers]
    return [p for p in peers if p.kind == "sluice" or p.name in _QUICK] if quick else peers

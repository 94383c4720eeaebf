"""The peers by name: what each one runs, what it is given of the queries, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.bench.peers.workloads import Sharing

Kind = Literal["sluice", "peer", "limit"]


@dataclass(frozen=True, slots=True)
class Peer:
    """An engine with its settings.

    Attributes:
        name: Name on the command line.
        says: What it is, for the report.
        kind: Sluice, a peer, or a limit: something that is no stream join, or none at all.
        sharing: What it is given of the queries.
        program: Module that runs it; none for Sluice, which is run as its users do.
        environment: Virtual environment of its own; empty means that of the project.
        share: Part of what its sharing is given, where it is slower than others that share so.
        options: For the program.
    """

    name: str
    says: str
    kind: Kind
    sharing: Sharing
    program: str = ""
    environment: str = ""
    share: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)


def _spark(name: str, says: str, sharing: Sharing, *, rocksdb: bool = False, files: int = 1) -> Peer:
    kept = "RocksDB, state format 4" if rocksdb else "default state store"
    size = "" if files == 1 else f", batches {files} times as large"
    return Peer(
        name=name,
        says=f"{says}; {kept}{size}",
        kind="peer",
        sharing=sharing,
        program="spark_join",
        options={"sharing": sharing, "rocksdb": rocksdb, "files_per_batch": files},
    )


def _flink(
    name: str, says: str, state: str, kind: Kind = "peer", sharing: Sharing = "each", share: float = 1.0
) -> Peer:
    return Peer(
        name=name,
        says=says,
        kind=kind,
        sharing=sharing,
        program="flink_join",
        environment="flink",
        share=share,
        options={"state": state},
    )


def _pathway(name: str, says: str, *, forget: bool) -> Peer:
    """Return Pathway, which holds all the rows it is given, for each query: it is given fewer."""
    return Peer(
        name=name,
        says=says,
        kind="peer",
        sharing="each",
        program="pathway_join",
        environment="pathway",
        share=0.25,
        options={"forget": forget},
    )


def _shuffle(name: str, says: str, *, streaming: bool) -> Peer:
    options = {"streaming": streaming, "files_per_batch": 1}
    return Peer(name, says, "limit", "none", program="spark_shuffle", options=options)


_LARGEST = "one native join of the largest window alone"
_BY_HAND = "one native join of the largest window, a filter per query"
_EACH = "a native join, and a streaming query, for each query"
_FLINK = "Flink SQL, an interval join for each query in one StatementSet"
_PATHWAY = "Pathway, an `interval_join` for each query in one graph"
_SHUFFLE = "Spark, rows read and shuffled by key"

PEERS = {
    peer.name: peer
    for peer in (
        Peer("sluice", "`sluice run --results shared`, all queries", "sluice", "all"),
        Peer(
            name="sluice-x5",
            says="the same, batches 5 times as large",
            kind="sluice",
            sharing="all",
            options={"files_per_batch": 5},
        ),
        Peer("sluice-one", "Sluice, the largest window alone", "sluice", "largest"),
        _spark("spark-one", _LARGEST, "largest"),
        _spark("spark-one-x5", _LARGEST, "largest", files=5),
        _spark("spark-one-rocksdb", _LARGEST, "largest", rocksdb=True),
        _spark("spark-hand", _BY_HAND, "hand"),
        _spark("spark-hand-x5", _BY_HAND, "hand", files=5),
        _spark("spark-hand-rocksdb", _BY_HAND, "hand", rocksdb=True),
        _spark("spark-each", _EACH, "each"),
        _spark("spark-each-x5", _EACH, "each", files=5),
        _spark("spark-each-rocksdb", _EACH, "each", rocksdb=True),
        _flink("flink-heap", f"{_FLINK}; state on the heap", "hashmap"),
        # Some ten times slower than on the heap.
        _flink("flink-rocksdb", f"{_FLINK}; state in RocksDB", "rocksdb", share=0.1),
        _pathway("pathway", f"{_PATHWAY}; every row is kept", forget=False),
        _pathway(
            "pathway-forget", f"{_PATHWAY}; rows out of reach are forgotten, inputs read in step", forget=True
        ),
        Peer("duckdb", "DuckDB's batch join, all queries counted from it", "limit", "all", "batch_join"),
        _shuffle("spark-shuffle", f"{_SHUFFLE} in the same batches; no join", streaming=True),
        _shuffle("spark-shuffle-batch", f"{_SHUFFLE} in one batch; no join", streaming=False),
        _flink("flink-read", "Flink, CSV read, parsed and counted; no join", "hashmap", "limit", "none"),
    )
}

#: What every peer is compared with.
REFERENCE = PEERS["sluice"]

"""What a bench runs, in which order, and how much of the rows each peer is given.

A run goes through the workloads; in each, peers that are given the same part of the rows make a group, and
Sluice goes over that part first, so that every ratio compares two runs over the same rows, minutes apart.

    run 1   many-keys   1      sluice, sluice-auto, ..., duckdb, spark-shuffle
                        0.2    sluice, spark-hand, ...
                        0.05   sluice, spark-each, flink-heap, ...
            few-keys    ...
    run 2   ...

Parts rest on rates written down once (`Peer.rows_per_s`), not on this machine's, so that they are the same in
every bench.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tests.bench.peers.measurement import Measurement
from tests.bench.peers.peers import Peer, peers_of
from tests.bench.peers.workloads import Workload

SHARES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01)
#: What a run that was given up says first.
GIVEN_UP = "not done after"


@dataclass(frozen=True, slots=True)
class Group:
    """Peers that go over the same rows, Sluice before them.

    Attributes:
        workload: The workload.
        run: Number of the run, from 1.
        share: Part of the workload's rows.
        peers: Peers; Sluice as the reference is among them where it was asked for, or does not matter.
    """

    workload: Workload
    run: int
    share: float
    peers: tuple[Peer, ...]


def share_of(workload: Workload, peer: Peer) -> float:
    """Return the part of the workload's rows that a peer does in the time that is enough."""
    wanted_s = 2 * workload.streams.rows / _rows_per_s(workload, peer)
    return next((share for share in SHARES if wanted_s * share <= workload.enough_s), SHARES[-1])


def groups(
    workloads: Sequence[Workload], peers: Sequence[Peer] | None, runs: int, *, quick: bool
) -> list[Group]:
    """Return everything that is to be run, in order."""
    found = []
    for run in range(1, runs + 1):
        for workload in workloads:
            chosen = peers or peers_of(workload, quick=quick)
            shares = {p.name: 1.0 if quick else share_of(workload, p) for p in chosen}
            for share in sorted({*shares.values()}, reverse=True):
                of_share = tuple(p for p in chosen if shares[p.name] == share)
                found.append(Group(workload, run, share, of_share))
    return found


def given_up(measured: Collection[Measurement], bench: str) -> set[tuple[str, str]]:
    """Return workload and peer of what took too long before: it is not waited for a second time."""
    return {(m.workload, m.peer) for m in measured if m.bench == bench and m.error.startswith(GIVEN_UP)}


def _rows_per_s(workload: Workload, peer: Peer) -> float:
    return workload.rows_per_s.get(peer.name, peer.rows_per_s / workload.weight)

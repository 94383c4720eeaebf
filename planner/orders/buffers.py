"""Number of rows that a join over ordered streams has to store, predicted from rates, disorder and lags.

    M_ij = max{1, k_i + r_i k_j / r_j + L_ij}     Eq. 7; with L_ij = 0 it is Eq. 6
    M_i  = max_j M_ij                             Eq. 8, for several other streams
    r_o <= sum_i r_i prod_{j != i} Mul_j          Eq. 9: rate of the output of a join
    k_o <= sum_i k_i prod_{j != i} Mul_j          Eq. 10: scrambling factor of the output

The predictions are used only in costs, previews and statistics. They do not decide when a row leaves the
state: it leaves when the other stream has passed it (``operators.orders``).

Difference from the paper: each k is replaced by k + 1. Definition 2.2 gives k >= Mul - 1 for a stream of
multiplicity Mul, but the derivation of the equations needs k >= Mul. With k unchanged, two ordered
streams with lag 1 would lose a pair.

Source: Window-Oblivious Join (Wu, Tan, Zhou), §3, Eq. 6 to 10, Theorem 3.1; §4 for memory with a limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from catalog.values.policies.memory import Memory


@dataclass(frozen=True, slots=True)
class OrderedStream:
    """Statistics of a stream that arrives in the order of a column, with some disorder.

    Attributes:
        scramble: Scrambling factor k.
        rate_per_s: Rows per second.
        multiplicity: Greatest number of rows with the same value in the ordering column.
    """

    scramble: float
    rate_per_s: float
    multiplicity: float = 1.0


def buffer_rows(own: OrderedStream, other: OrderedStream, lag: float = 0.0) -> float:
    """Return how many rows of a stream must be stored to join it with another stream (Eq. 6 and 7).

    >>> buffer_rows(OrderedStream(500, 50), OrderedStream(100, 25), lag=10)
    713.0

    Args:
        own: The stream whose rows are stored.
        other: The other stream.
        lag: Rows by which ``own`` leads, measured when a row arrives that has the same sorted place as the
            newest row of ``other``.

    Returns:
        Number of rows, at least 1; infinite if ``other`` has rate 0.
    """
    if own.rate_per_s <= 0:
        return 1.0
    if other.rate_per_s <= 0:
        return math.inf
    waiting = own.rate_per_s * (other.scramble + 1) / other.rate_per_s
    return max(1.0, own.scramble + 1 + waiting + lag)


def memory_rows(memory: Memory, own: OrderedStream, other: OrderedStream, lag: float) -> float:
    """Return how many rows of a stream are in memory, including rows that wait (§4).

    >>> streams = OrderedStream(500, 50, 2), OrderedStream(100, 25, 2)
    >>> memory_rows(Memory("dbf", read_ahead=100), *streams, lag=9000)
    803.0
    >>> memory_rows(Memory("msf"), *streams, lag=9000), memory_rows(Memory("hybrid", 100), *streams, lag=9000)
    (9208.0, 607.0)

    Args:
        memory: Method that decides where rows wait.
        own: The stream whose rows are counted.
        other: The other stream.
        lag: Rows by which ``own`` leads on arrival. Sorting delays each stream by k rows. So the lag after
            sorting is lower by the k of ``own``, and higher by the rows of ``own`` that arrive while
            ``other`` is delayed.
    """
    waiting = 0.0
    if memory.sorts:
        waiting = own.scramble + 1
        if other.rate_per_s > 0:
            lag += own.rate_per_s * (other.scramble + 1) / other.rate_per_s - waiting
        own, other = (replace(stream, scramble=stream.multiplicity - 1) for stream in (own, other))
    rows = buffer_rows(own, other, lag)
    return waiting + (min(rows, memory.read_ahead + buffer_rows(own, other)) if memory.parks else rows)


def latency_s(memory: Memory, stream: OrderedStream) -> float:
    """Return how long, in seconds, rows of a stream wait for earlier rows that may still arrive.

    >>> latency_s(Memory("msf"), OrderedStream(499, 50)), latency_s(Memory(), OrderedStream(499, 50))
    (10.0, 0.0)

    Args:
        memory: Method that decides where rows wait.
        stream: The stream whose rows wait.

    Returns:
        Seconds; infinite if the stream has rate 0.
    """
    if not memory.sorts:
        return 0.0
    return (stream.scramble + 1) / stream.rate_per_s if stream.rate_per_s > 0 else math.inf


def joined(streams: Sequence[OrderedStream]) -> OrderedStream:
    """Return the greatest rate, scrambling factor and multiplicity that the output of a join may have.

    >>> joined([OrderedStream(10, 50, 2), OrderedStream(20, 25, 3)])
    OrderedStream(scramble=74.0, rate_per_s=200.0, multiplicity=6.0)

    Args:
        streams: Inputs of the join.

    Source: Eq. 9 and 10 (Theorem 3.1).
    """
    rate = scramble = 0.0
    for number, stream in enumerate(streams):
        partners = math.prod(other.multiplicity for i, other in enumerate(streams) if i != number)
        rate += stream.rate_per_s * partners
        scramble += (stream.scramble + 1) * partners
    most = math.prod(float(stream.multiplicity) for stream in streams)
    return OrderedStream(scramble - 1, rate, most)

"""Warnings about a query: rows that it keeps forever, and contracts that it cannot use."""

from __future__ import annotations

from catalog.values.query import UNBOUNDED_US, Query, Side
from catalog.values.stream import Stream


def query_warnings(query: Query, a: Stream, b: Stream) -> tuple[str, ...]:
    """Return warnings about a query of two streams; a query of more streams has no warnings.

    Args:
        query: The query.
        a: Stream of side a.
        b: Stream of side b.
    """
    if query.left is not None:
        return ()
    timed = query.a.clock == query.b.clock == "time"
    uses = timed and bool(query.key)
    key_a, key_b = (frozenset(pair[number] for pair in query.key) for number in (0, 1))
    closes_a, closes_b = uses and a.closes_keys(key_a), uses and b.closes_keys(key_b)
    found = [
        f'rows of "{side.alias}" are kept forever: the window is unbounded, and no contract of stream '
        f'"{other.name}" closes the join key'
        for side, other, closes in ((query.a, b, closes_b), (query.b, a, closes_a))
        if timed and side.window_us >= UNBOUNDED_US and not closes
    ]
    sides: list[tuple[Side, Stream, bool, frozenset[str]]] = [
        (query.a, a, closes_a, key_a),
        (query.b, b, closes_b, key_b),
    ]
    for side, stream, closes, key in sides:
        if stream.has_contract and not closes:
            reason = f"it closes no key of {{{', '.join(sorted(key))}}}"
            if not uses:
                reason = "only joins with an equal key and time windows use contracts"
            found.append(f'the contract of stream "{stream.name}" ("{side.alias}") is not used: {reason}')
    return tuple(dict.fromkeys(found))

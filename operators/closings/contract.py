"""The part of a stream's contract that a side of a family can use.

A punctuation closes a key if it fixes all key columns of the side and no others. A stream whose rows are
unique in some of the key columns closes the key of each new row. A stream clustered by the key columns closes
a key when the next key arrives. A stream ordered by the key closes all keys that are less than the greatest
key by more than an allowed amount.

Families with windows of rows use no contract, because such a window counts rows of all keys. Ordered families
use no contract either, because closings are forgotten by event time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from catalog.values.plan import FamilyPlan
from catalog.values.stream import Stream


@dataclass(frozen=True, slots=True)
class SideContract:
    """Rules by which the keys of a side are closed.

    Attributes:
        stream: Name of the stream.
        on: A punctuation closes a key if it fixes exactly these columns; None if punctuations close no key.
        unique: True if each row closes its own key.
        clustered: True if a run of rows with equal keys closes the key when it ends.
        slack: Maximum amount by which a key may be less than the greatest key before it; all lesser keys are
            closed. None if the stream is not ordered by the key.
        stops: True if a row that breaks a promise stops the engine; otherwise it is dropped.
        remember_us: Minimum time for which closings are remembered, µs of event time; None means forever.
    """

    stream: str
    on: frozenset[str] | None
    unique: bool
    clustered: bool
    slack: int | None
    stops: bool
    remember_us: int | None

    @property
    def derives(self) -> bool:
        """Return whether rows close keys."""
        return self.unique or self.clustered or self.slack is not None


def side_contract(family: FamilyPlan, side: str, stream: Stream) -> SideContract | None:
    """Return the part of the stream's contract that a side can use, or None if it can use no part.

    Args:
        family: The family, with its queries.
        side: ``a`` or ``b``.
        stream: The stream of the side.
    """
    if not stream.has_contract or family.ranked or family.ordered:
        return None
    key = frozenset(pair[0] if side == "a" else pair[1] for pair in family.key)
    promised = stream.punctuations
    on = key if promised is not None and any(frozenset(names) == key for names in promised.on) else None
    rules = stream.constraints
    if on is None and not rules.close(key):
        return None
    unique = bool(rules.unique) and frozenset(rules.unique) <= key
    clustered = bool(rules.clustered) and frozenset(rules.clustered) == key
    violation: Literal["drop", "stop"] = "drop" if promised is None else promised.violation
    remember_us = 0 if promised is None else promised.remember_us
    slack = rules.slack(key)
    return SideContract(stream.name, on, unique, clustered, slack, violation == "stop", remember_us)

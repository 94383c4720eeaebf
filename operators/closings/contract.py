"""The part of a stream's contract that a side of a family can use.

A punctuation closes a key if it fixes all key columns of the side and no others. A stream whose rows are
unique in some of the key columns closes the key of each new row.

Families of outer, semi and anti joins use no contract: times alone decide which of their rows are absent. Nor
do families with windows of rows, which count rows of any key. Nor do ordered families, because closings are
forgotten by event time.
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
        on: Columns that a punctuation must fix exactly; None: punctuations close no key.
        unique: True if each row closes its own key.
        stops: True if a row that breaks a promise stops the engine; otherwise it is dropped.
        remember_us: Least time for which closings are remembered, µs of event time; None: forever.
    """

    stream: str
    on: frozenset[str] | None
    unique: bool
    stops: bool
    remember_us: int | None


def side_contract(family: FamilyPlan, side: str, stream: Stream) -> SideContract | None:
    """Return the part of its stream's contract that a side can use; None if there is none.

    Args:
        family: The family, with its queries.
        side: ``a`` or ``b``.
        stream: The stream of the side.
    """
    if not stream.has_contract or family.judges_absence or family.counted_sides or family.ordered:
        return None
    key = frozenset(pair[0] if side == "a" else pair[1] for pair in family.key)
    promised = stream.punctuations
    on = key if promised is not None and any(frozenset(names) == key for names in promised.on) else None
    columns = frozenset(stream.constraints.unique)
    unique = bool(columns) and columns <= key
    if on is None and not unique:
        return None
    violation: Literal["drop", "stop"] = "drop" if promised is None else promised.violation
    remember_us = 0 if promised is None else promised.remember_us
    return SideContract(stream.name, on, unique, violation == "stop", remember_us)

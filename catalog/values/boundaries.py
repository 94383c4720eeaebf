"""Boundaries of the slices of a family's two chains."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Boundaries:
    """Ends of slices per side, µs, ascending; empty for a side of which nothing is said.

    Attributes:
        a: Ends of a's slices.
        b: Ends of b's slices.
    """

    a: tuple[int, ...] = ()
    b: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for ends in (self.a, self.b):
            if any(left >= right for left, right in itertools.pairwise((0, *ends))):
                raise ValueError(f"boundaries do not ascend from 0: {ends}")

    def __bool__(self) -> bool:
        return bool(self.a or self.b)

    def side(self, side: Literal["a", "b"]) -> tuple[int, ...]:
        """Return the ends of one side's slices."""
        return self.a if side == "a" else self.b

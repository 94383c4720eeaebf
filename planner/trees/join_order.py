"""An order in which a query can join its streams."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from planner.bind.keys.step_keys import Joining, JoinShape
from planner.sql.scopes.step_scope import Item, flat


@dataclass(frozen=True, slots=True)
class JoinOrder:
    """An order in which the streams of a query can be joined, and its cost.

    Attributes:
        positions: Positions in FROM, in join order; streams that are joined as a group form a nested tuple.
        cpu_s: CPU seconds per second of event time.
        rows: Number of rows and combinations of rows in the state.
        exchanges: Number of times that pairs are exchanged for another key; each delays results by a batch.
        again: Numbers of the steps, from 2, whose input pairs from the previous step are not stored.
    """

    positions: tuple[Item, ...]
    cpu_s: float = 0.0
    rows: float = 0.0
    exchanges: int = 0
    again: tuple[int, ...] = ()

    @property
    def rank(self) -> tuple[float, int, float, int, tuple[int, ...], tuple[int, ...], str]:
        """Sort key for comparing orders; if all other parts are equal, the order of FROM decides."""
        # Rounded, so that sums of the same terms are equal whatever the order of addition.
        cpu_s, rows = float(f"{self.cpu_s:.9e}"), float(f"{self.rows:.9e}")
        tree = str(self.positions) if self.groups else ""
        return cpu_s, self.groups, rows, self.exchanges, flat(self.positions), self.again, tree

    @property
    def groups(self) -> int:
        """Number of steps in which both sides are pairs of earlier steps."""
        return _groups(self.positions)

    @property
    def joining(self) -> Joining:
        """The order as a ``Joining``, which binding uses."""
        return Joining(
            self.positions, frozenset(frozenset(flat(self.positions[:step])) for step in self.again)
        )

    @property
    def base(self) -> int:
        """Number of streams at the beginning of the order whose combinations are stored for the last step.

        >>> [JoinOrder((0, 1, 2, 3), again=again).base for again in ((), (3,), (2, 3))]
        [3, 2, 1]
        """
        base = len(self.positions) - 1
        while base > 1 and base in self.again:
            base -= 1
        return base

    def text(self, shape: JoinShape) -> str:
        """Return the order for display: ``((a, b), c)``, or ``(a, b, c)`` if (a, b) is not stored."""
        return _text(self.positions, self.again, shape)


def _text(positions: tuple[Item, ...], again: Collection[int], shape: JoinShape) -> str:
    shown, *others = (
        shape.aliases[item] if isinstance(item, int) else _text(item, (), shape) for item in positions
    )
    for step, joined in enumerate(others, 1):
        shown = f"{shown[:-1]}, {joined})" if step in again else f"({shown}, {joined})"
    return shown


def _groups(positions: tuple[Item, ...]) -> int:
    return sum(1 + _groups(item) for item in positions if not isinstance(item, int))

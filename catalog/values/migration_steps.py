"""Parts of a migration that somebody asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ExplicitStep:
    """One split or merge that is asked for.

    Attributes:
        kind: Which of both.
        at_us: Where the slices meet or shall meet, µs.
        side: Stream of the side (``a`` or ``b``, too); None for both sides.
        path: Where it stands in the request.
    """

    kind: Literal["split", "merge"]
    at_us: int
    side: str | None = None
    path: tuple[str | int, ...] = ()


@dataclass(frozen=True, slots=True)
class OnLeave:
    """When a chain gives up the boundaries and the length that only departed queries needed.

    Attributes:
        policy: ``auto``: with the version in which a query leaves. ``manual``: with a clean-up. ``after``:
            with a clean-up that comes by itself.
        after_us: How long after the last query left, µs; for ``after`` alone.
    """

    policy: Literal["auto", "manual", "after"] = "auto"
    after_us: int = 0

    @property
    def keeps(self) -> bool:
        """Whether anything stays beyond the version in which a query leaves."""
        return self.policy != "auto"

"""When a family acts on the keys that its streams have closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from catalog.durations import format_duration

#: When result punctuations come out (``PunctuationPolicy``).
Propagate = Literal["push", "matched", "pull"]


@dataclass(frozen=True, slots=True)
class PunctuationPolicy:
    """When a family acts on the keys that its streams have closed.

    Attributes:
        purge_after: Closings in a bucket after which rows of closed keys are removed from the state; None: by
            cost.
        propagate: When result punctuations come out. ``push``: without being asked. ``matched``: once both
            streams have closed a key. ``pull``: when somebody asks.
        every_us: With ``push``, event time from one propagation to the next; None: any.
        every_closings: With ``push``, closings in a bucket from one propagation to the next; None: any.
    """

    purge_after: int | None = None
    propagate: Propagate = "push"
    every_us: int | None = None
    every_closings: int | None = None

    @property
    def purge_text(self) -> str:
        """The policy as it is written.

        >>> PunctuationPolicy(purge_after=100).purge_text
        'lazy(100)'
        """
        if self.purge_after is None:
            return "auto"
        return "eager" if self.purge_after == 1 else f"lazy({self.purge_after})"

    @property
    def propagate_text(self) -> str:
        """The policy as it is written.

        >>> PunctuationPolicy(every_us=10_000_000).propagate_text
        'every(10s)'
        """
        if self.every_closings is not None:
            return f"every({self.every_closings})"
        return self.propagate if self.every_us is None else f"every({format_duration(self.every_us)})"


@dataclass(frozen=True, slots=True)
class PurgePrices:
    """CPU seconds that decide when stored rows are searched for those whose key is closed.

    The defaults are those of the constants that Sluice comes with, for slices that are merged.

    Attributes:
        per_searched_row: Per stored row that is searched.
        per_probed_row: Per male and stored row, where rows lie in rings.
        per_probed_segment: Per male and segment.
    """

    per_searched_row: float = 2e-09
    per_probed_row: float = 0.0
    per_probed_segment: float = 5.27e-09

"""Policy that says when a family acts on the keys that its streams have closed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from catalog.times.durations import format_duration

#: When result punctuations are made (``PunctuationPolicy``).
Propagate = Literal["push", "matched", "pull"]


@dataclass(frozen=True, slots=True)
class PunctuationPolicy:
    """Policy that says when a family acts on the keys that its streams have closed.

    Attributes:
        purge_after: Number of key closings in a bucket after which rows of closed keys are removed from the
            state; None if costs decide.
        propagate: When result punctuations are made. ``push``: automatically. ``matched``: once both streams
            have closed a key. ``pull``: on request.
        every_us: With ``push``, shortest event time between two propagations, µs; None for no minimum.
        every_closings: With ``push``, smallest number of key closings in a bucket between two propagations;
            None for no minimum.
    """

    purge_after: int | None = None
    propagate: Propagate = "push"
    every_us: int | None = None
    every_closings: int | None = None

    @property
    def purge_text(self) -> str:
        """The setting for purges in the form in which users write it.

        >>> PunctuationPolicy(purge_after=100).purge_text
        'lazy(100)'
        """
        if self.purge_after is None:
            return "auto"
        return "eager" if self.purge_after == 1 else f"lazy({self.purge_after})"

    @property
    def propagate_text(self) -> str:
        """The setting for result punctuations in the form in which users write it.

        >>> PunctuationPolicy(every_us=10_000_000).propagate_text
        'every(10s)'
        """
        if self.every_closings is not None:
            return f"every({self.every_closings})"
        return self.propagate if self.every_us is None else f"every({format_duration(self.every_us)})"


@dataclass(frozen=True, slots=True)
class PurgePrices:
    """Costs in CPU seconds that decide when stored rows are searched for rows with closed keys.

    The defaults follow from the calibration shipped with Sluice, for slices that are searched by ``merge``.

    Attributes:
        per_searched_row: Per stored row that is searched.
        per_probed_row: Per male and stored row, if rows are in rings.
        per_probed_segment: Per male and segment.
    """

    per_searched_row: float = 2e-09
    per_probed_row: float = 0.0
    per_probed_segment: float = 5.27e-09

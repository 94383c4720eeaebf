"""Ways to search the slices of a family for partners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Rings of a join from which an arriving row removes expired rows (``Probe``).
Invalidation = Literal["probe", "probe+insert", "probe-all", "optimal"]
#: Most rings per side and bucket. There is a limit, because the state stores for each ring how far it has
#: been emptied.
MOST_CELLS = 4096


@dataclass(frozen=True, slots=True)
class Probe:
    """Way to search the slices of a join for partners, and to remove expired rows.

    With ``merge``, males are merged with segments sorted by key, and the watermarks remove expired rows. With
    ``hash``, rows are in rings by their key modulo ``cells``, and a male scans the ring of its key. With
    ``loops``, all rows are in one ring.

    Attributes:
        method: How partners are found.
        cells: Rings per side and bucket; 1 unless the method is ``hash``.
        invalidation: Rings from which an arriving row removes expired rows. ``probe``: the ring that it
            probes; ``probe+insert``: also the ring that it enters; ``probe-all``: all rings of the side that
            it probes; ``optimal``: all rings of both sides. Unused by ``merge``.
    """

    method: Literal["merge", "hash", "loops"] = "merge"
    cells: int = 1
    invalidation: Invalidation = "probe"

    def __post_init__(self) -> None:
        if not 1 <= self.cells <= MOST_CELLS:
            raise ValueError(f"a join has 1 to {MOST_CELLS} rings per side, not {self.cells}")
        if self.cells > 1 and self.method != "hash":
            raise ValueError(f"{self.method} has one ring per side, not {self.cells}")

    @property
    def has_rings(self) -> bool:
        """Return whether rows are in rings."""
        return self.method != "merge"


#: Requested way to search slices; ``auto`` lets the planner choose.
AskedProbe = Probe | Literal["auto"]

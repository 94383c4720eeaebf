"""Methods of searching slices as users write them: ``merge``, ``loops``, ``hash(100)``, or ``auto``."""

from __future__ import annotations

from typing import get_args

from catalog.values.policies.probe import MOST_CELLS, AskedProbe, Invalidation, Probe
from catalog.wording.wording import listed
from planner.errors import InvalidProbe

_INVALIDATIONS: tuple[Invalidation, ...] = get_args(Invalidation)
_HINT = f"Write auto, merge, loops or hash(N), with N from 1 to {MOST_CELLS}."


def asked_probe(text: str, invalidation: str | None = None) -> AskedProbe:
    """Return the method of searching slices that a text names.

    >>> asked_probe("hash(100)", "probe-all")
    Probe(method='hash', cells=100, invalidation='probe-all')

    Args:
        text: ``auto``, ``merge``, ``loops`` or ``hash(N)``.
        invalidation: Name that determines from which rings expired rows are removed when a row arrives. With
            None, they are removed from the probed ring.

    Raises:
        InvalidProbe: A name is unknown, the number of rings is out of range, or ``invalidation`` is given for
            a method without rings.
    """
    said = text.strip().lower()
    how = "probe" if invalidation is None else _invalidation(invalidation)
    if said in ("auto", "merge"):
        if invalidation is not None:
            raise InvalidProbe(
                f"{said} takes no invalidation",
                detail="It decides which rings lose expired rows when a row arrives. Merging has no rings.",
                hint="Leave invalidation out, or write loops or hash(N).",
                path=("invalidation",),
            )
        return "auto" if said == "auto" else Probe()
    if said == "loops":
        return Probe("loops", 1, how)
    number = said.removeprefix("hash(").removesuffix(")").strip()
    if not (said.startswith("hash(") and said.endswith(")")):
        raise InvalidProbe(f'probe "{text}" does not exist', hint=_HINT, path=("probe",))
    digits = number.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        raise InvalidProbe(f'"{number}" is not a number of rings', hint=_HINT, path=("probe",))
    cells = int(number)
    if not 1 <= cells <= MOST_CELLS:
        raise InvalidProbe(
            f"hash({cells}) is out of range",
            detail=f"A join has 1 to {MOST_CELLS} rings per side and bucket.",
            hint=_HINT,
            path=("probe",),
        )
    return Probe("hash", cells, how)


def _invalidation(text: str) -> Invalidation:
    """Return the invalidation (choice of rings that lose expired rows) that a name denotes."""
    for known in _INVALIDATIONS:
        if text == known:
            return known
    raise InvalidProbe(
        f'invalidation "{text}" does not exist',
        hint=f"Write one of: {listed(_INVALIDATIONS)}.",
        path=("invalidation",),
    )


def probe_text(probe: AskedProbe) -> str:
    """Return a method of searching slices as users write it.

    >>> probe_text(Probe()), probe_text(Probe("hash", 100, "optimal"))
    ('merge', 'hash(100), invalidation optimal')
    """
    if isinstance(probe, str) or not probe.has_rings:
        return "auto" if isinstance(probe, str) else "merge"
    name = "loops" if probe.method == "loops" else f"hash({probe.cells})"
    return f"{name}, invalidation {probe.invalidation}"

"""Wording of errors and hints: nearest names, lists of names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Most names that a hint lists.
_MOST_LISTED = 20


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to a name, ignoring case, or None.

    >>> nearest("delya", ["carrier", "Delay"])
    'Delay'
    """
    by_folded = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), by_folded, n=1)
    return by_folded[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """Return a hint with the most similar known name; None if no known name is similar."""
    near = nearest(name, known)
    return None if near is None else f'Did you mean "{near}"?'


def nearest_or_known(name: str, known: Iterable[str], kind: str = "") -> str | None:
    """Return a hint with the most similar known name, or with all known names if none is similar.

    Args:
        name: The name that is not known.
        known: Names that exist.
        kind: Kind of the objects with these names, in the singular. If it is empty and no name is known,
            there is no hint.

    >>> nearest_or_known("x", ["arrivals", "flights"], "stream")
    'Known streams: arrivals, flights.'
    """
    names = list(dict.fromkeys(known))
    if (hint := did_you_mean(name, names)) is not None:
        return hint
    if not names:
        return f"There is no {kind} yet." if kind else None
    kinds = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    more = ", ..." if len(names) > _MOST_LISTED else ""
    return f"Known{f' {kinds}' if kind else ''}: {', '.join(names[:_MOST_LISTED])}{more}."


def with_article(noun: str) -> str:
    """Return a noun with its article: ``an int``, ``a date``."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def listed(names: Iterable[str]) -> str:
    """Return names quoted and joined for a sentence: ``"a", "b" and "c"``."""
    quoted = [f'"{name}"' for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)

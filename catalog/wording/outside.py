"""Texts from outside: names of files, which must stay below their directory, and texts for messages."""

from __future__ import annotations

import os

from catalog.errors import CorruptDocument


def printable(text: str, most: int = 200) -> str:
    r"""Return a text with escapes instead of control characters and halves of surrogate pairs.

    >>> print(printable("a\nb\x1b[2J"), printable("\ud800"), printable("12345678", most=5))
    a\nb\x1b[2J \ud800 12345…

    Args:
        text: The text.
        most: Maximum number of characters of the text that are returned; the rest is cut off.
    """
    cut = text if len(text) <= most else f"{text[:most]}…"
    if cut.isprintable():
        return cut
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in cut
    )


def is_below(name: str) -> bool:
    """Return whether a name is a relative path that stays below its directory.

    >>> [is_below(name) for name in ("b1-s1s2.parquet", "state/0/1", "/etc/passwd", "a/../../b", "a//b", "")]
    [True, True, False, False, False, False]
    """
    if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
        return False
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    return True


def check_below(name: str) -> str:
    """Return a name that stays below its directory.

    Raises:
        CorruptDocument: The name leads elsewhere.
    """
    if not is_below(name):
        raise CorruptDocument(
            f'stored name "{printable(name)}" leads out of its directory',
            detail="No version of Sluice writes such names, so the files were changed by someone else.",
            hint="Restore the data directory from a backup that you trust.",
        )
    return name

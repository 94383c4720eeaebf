"""Intersections of sets of queries.

A pair may serve the queries that the classes of both of its rows may serve. With 20 classes per side there
are 400 combinations of classes. Few combinations occur, and some give the same set of queries.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from operators.kernels.keys import Codes, Int64s
from operators.lineage.lineage import RowClasses

#: If there are more possible combinations than this number, and more than there are codes, ``np.unique``
#: finds the combinations that occur. Otherwise a table with an entry for each possible combination finds them
#: faster.
MAX_DIRECT_COMBINATIONS = 1 << 20
#: Up to this many combinations are not renumbered, because processing all of them is faster than finding the
#: combinations that occur.
FEW_COMBINATIONS = 1 << 12


def intersected(parts: Sequence[RowClasses], count: int) -> tuple[Int64s, list[int]]:
    """Return, for each pair, the queries that all of its classes may serve.

    Args:
        parts: Classifications of the pairs, for example by a's row and by b's row.
        count: Number of pairs.

    Returns:
        codes: int64[count], index of each pair's set in ``sets``.
        sets: Sets of queries.
    """
    always = -1
    tables: list[tuple[Codes, Sequence[int]]] = []
    for part in parts:
        if part.codes is None:
            always &= part.masks[0]
        else:
            tables.append((part.codes, part.masks))
    if not tables:
        return np.zeros(count, dtype=np.int64), [always]
    # Small tables come first, so that only the last step has many sets (for example, with 2,000 windows and
    # 20 classes per side).
    (codes, masks), *others = sorted(tables, key=lambda table: len(table[1]))
    sets = [mask & always for mask in masks]
    for more, masks in others:
        codes, sets = _compact(codes.astype(np.int64, copy=False) * len(masks) + more, sets, masks)
    return codes.astype(np.int64, copy=False), sets


def renumbered(codes: Int64s, combinations: int) -> tuple[Int64s, Int64s]:
    """Number the codes that occur, in ascending order.

    Args:
        codes: int64[n], each below ``combinations``.
        combinations: Number of possible codes.

    Returns:
        present: Codes that occur, ascending.
        places: int64[n], index of each code in ``present``.
    """
    if combinations > max(MAX_DIRECT_COMBINATIONS, len(codes)):
        present, places = np.unique(codes, return_inverse=True)
        return present, places
    present = np.flatnonzero(np.bincount(codes, minlength=combinations))
    table = np.zeros(combinations, dtype=np.int64)
    table[present] = np.arange(len(present))
    return present, table[codes]


def _compact(codes: Int64s, sets: Sequence[int], masks: Sequence[int]) -> tuple[Int64s, list[int]]:
    """Intersect each pair's set with a mask, and number the distinct intersections.

    Args:
        codes: int64[n], index of the set times the number of masks, plus the index of the mask.
        sets: Sets of queries.
        masks: Sets of queries with which the sets are intersected.
    """
    # Few of the possible combinations occur: 1,000 distances, 20 classes of a and 20 of b make 400,000.
    present, places = renumbered(codes, len(sets) * len(masks))
    of_set, of_mask = (numbers.tolist() for numbers in np.divmod(present, len(masks)))
    numbering: dict[int, int] = {}
    new = np.array(
        [
            numbering.setdefault(sets[i] & masks[j], len(numbering))
            for i, j in zip(of_set, of_mask, strict=True)
        ],
        dtype=np.int64,
    )
    return new[places], list(numbering)

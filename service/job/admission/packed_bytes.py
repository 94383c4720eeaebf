"""Estimate of the bytes of a batch's rows in transit from the tasks that read to the tasks that join.

On a cluster, the rows of a batch pass through the heap of Spark's JVM, and a task needs more of the heap for
more rows. A batch that does not fit into the heap fails, and it fails again at each replay, because its
offsets are logged. So the next batch is limited to the number of rows that fit into the heap, estimated from
the bytes of the last batch's rows. On one machine, large sets of rows are passed in files
(``operators.segments.files.segment_files``); there, the limit saves memory of the workers.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from catalog.values.batch import BatchManifest

#: Fraction of the JVM's heap that the rows of a batch may take. On two cores, a heap of 1 GB was enough for
#: 300 MB of rows, but not for 800 MB.
HEAP_PART: Final = 0.25

#: Bytes per row in transit besides its stored columns: event time, position, key hash, lineage.
_MORE_BYTES: Final = 32


def packed_bytes(manifest: BatchManifest) -> float | None:
    """Estimate the bytes of a batch's rows in transit from reading to joining.

    Rows that no query needs are not counted. Rows that a family replicates count once per bucket. A row is
    assumed to have as many bytes as the rows of its family side in the state.

    Args:
        manifest: Manifest of the batch.

    Returns:
        Bytes, or None if the state has no rows from which the bytes of a row can be estimated.
    """
    held: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for part in manifest.slices:
        sums = held[part.family, part.side]
        sums[0] += part.own_bytes or part.bytes
        sums[1] += part.rows
    widths = {side: size / rows for side, (size, rows) in held.items() if rows}
    sent = {(keys.family, keys.side): max(keys.rows, keys.copies) for keys in manifest.keys}
    if not widths:
        return None if any(sent.values()) else 0.0
    widest = max(widths.values())
    return sum(rows * (widths.get(side, widest) + _MORE_BYTES) for side, rows in sent.items())

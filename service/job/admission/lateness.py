"""Return whether rows of a stream could be late, judged by what is listed of its input.

A row is late if it is older than the watermark at the start of its batch, so where input is cut decides which
rows are. Watermarks move between batches only, and batches end where pieces do: if every piece begins at or
above the watermark that all pieces before it make, no cut makes any row late.
"""

from __future__ import annotations

from catalog.values.stream import KafkaSource, Stream
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.job.admission.admission import pieces_from


def none_can_be_late(stream: Stream, inputs: Inputs) -> bool:
    """Return whether no row that a stream has now is late, however its input is cut into batches.

    Args:
        stream: The stream.
        inputs: What there is of it.
    """
    if isinstance(stream.source, KafkaSource):
        return False  # to tell, all messages would have to be looked through
    newest_us: int | None = None
    for piece in pieces_from(Lane(stream), stream.initial_position, inputs):
        if not piece.rows:
            continue
        if piece.t_min_us is None or piece.t_max_us is None:
            return False
        if newest_us is not None and piece.t_min_us < newest_us - stream.lateness_us:
            return False
        newest_us = piece.t_max_us if newest_us is None else max(newest_us, piece.t_max_us)
    return True

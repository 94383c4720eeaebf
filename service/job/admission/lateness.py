"""Check whether rows of a stream could be late, judged by its listed input.

A row is late if it is older than the watermark at the start of its batch, so lateness depends on where input
is cut into batches. Watermarks move only between batches, and batches end at ends of pieces. So no row is
late, however input is cut, if every piece begins at or above the watermark of all pieces before it.
"""

from __future__ import annotations

from catalog.values.stream import KafkaSource, Stream
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.job.admission.admission import pieces_from


def none_can_be_late(stream: Stream, inputs: Inputs) -> bool:
    """Return whether no row available now can be late, however the input is cut into batches.

    Args:
        stream: The stream.
        inputs: Its available input.
    """
    if isinstance(stream.source, KafkaSource):
        return False  # checking would require reading all messages
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

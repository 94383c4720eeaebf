"""Check whether rows of a stream could be late, based on the time ranges of the stream's listed input.

A row is late if it is older than the watermark at the start of its batch, so lateness depends on where input
is cut into batches. Watermarks move only between batches, and a batch ends where a piece ends. If every piece
begins at or above the watermark that all earlier pieces cause, no row is late, however the input is cut.
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
        inputs: The available input.
    """
    if isinstance(stream.source, KafkaSource):
        return False  # time ranges of messages are unknown until all messages are read
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

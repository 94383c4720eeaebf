"""Totals over all committed batches."""

from __future__ import annotations

from typing import NamedTuple


class Totals(NamedTuple):
    """What all committed batches gave together.

    Attributes:
        input_rows: Rows read, late and rejected ones included.
        late_rows: Rows below the watermark of their stream.
        state_rows_peak: Most rows held at the end of a batch.
        state_bytes_peak: Most encoded bytes held at the end of a batch.
        batches: Number of batches.
    """

    input_rows: int
    late_rows: int
    state_rows_peak: int
    state_bytes_peak: int
    batches: int

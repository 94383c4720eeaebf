"""Generator of rows: Poisson arrivals, the same for the same seed; generation can start at any chunk.

Event time is cut into chunks of equal length; chunk c covers [start + c * chunk_us, + chunk_us). The number
of rows of a chunk is Poisson-distributed, and their times are uniform and sorted; the result is a Poisson
process. Every draw is seeded by (seed, purpose, chunk), so no chunk depends on another chunk, and no column
on another column.
"""

from __future__ import annotations

import math
import zlib
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.columns.arrow_types import POSITION_COLUMN, arrow_schema
from catalog.values.stream import GeneratedColumn, GeneratorSource, Stream
from service.errors import InvalidGenerator
from service.inputs.partitions import ROW_BITS, Piece
from service.inputs.sources.generated.distributions import draw, to_arrow

_SECOND_US: Final = 1_000_000
#: Target rows of a chunk: enough for efficient arrays, few enough to align streams and to cut batches.
_ROWS_PER_CHUNK: Final = 20_000
#: Limits of a chunk's length. Chunks of endless streams appear once the clock has passed them, so their
#: length, and thus the delay, is at most a second.
_MIN_CHUNK_US: Final = 1_000
_MAX_LIVE_CHUNK_US: Final = _SECOND_US
_MAX_CHUNK_US: Final = 60 * _SECOND_US
#: Number of chunks whose row counts are drawn at once.
_CHUNKS_PER_BLOCK: Final = 1024

#: Purpose of a random stream, used as its second seed.
_COUNTS, _TIMES, _COLUMNS = 1, 2, 3

Ints = npt.NDArray[np.int64]


def chunk_us(source: GeneratorSource) -> int:
    """Return the event time that a chunk covers, µs.

    >>> chunk_us(GeneratorSource(rate_per_s=100_000)), chunk_us(GeneratorSource(rate_per_s=0.1))
    (200000, 10000000)
    """
    longest = _MAX_CHUNK_US
    if source.rows is None:
        # At less than one row per second, most chunks of a second would be empty and still cost a batch, so
        # chunks are longer.
        longest = min(max(_MAX_LIVE_CHUNK_US, int(_SECOND_US / source.rate_per_s)), _MAX_CHUNK_US)
    return min(max(int(_ROWS_PER_CHUNK * _SECOND_US / source.rate_per_s), _MIN_CHUNK_US), longest)


def chunks_available(source: GeneratorSource, now_us: int) -> int:
    """Return the number of readable chunks: all of a bounded stream, else all chunks before the clock."""
    length = _length_us(source)
    if length is not None:
        return -(-length // chunk_us(source))
    return max((now_us - _start_us(source)) // chunk_us(source), 0)


def generator_pieces(stream: Stream, source: GeneratorSource, start: int, end: int) -> tuple[Piece, ...]:
    """Return the pieces of chunks [start, end), with their exact number of rows."""
    step, origin = chunk_us(source), _start_us(source)
    pieces = []
    for chunk, rows in zip(range(start, end), _counts(source, start, end).tolist(), strict=True):
        t_min_us = origin + chunk * step
        t_max_us = t_min_us + _chunk_length_us(source, chunk) - 1
        pieces.append(Piece(stream.id, chunk, rows, t_min_us if rows else None, t_max_us if rows else None))
    return tuple(pieces)


def generate(
    stream: Stream, source: GeneratorSource, start: int, end: int, names: tuple[str, ...]
) -> pa.Table:
    """Return the rows of chunks [start, end).

    Args:
        stream: The stream.
        source: Its source.
        start: First chunk.
        end: Chunk after the last.
        names: Columns to return.

    Returns:
        The columns in the order of ``names``, then ``_pos``.
    """
    counts = _counts(source, start, end).tolist()
    times = [_times(source, chunk, rows) for chunk, rows in zip(range(start, end), counts, strict=True)]
    all_times: Ints = np.concatenate([np.empty(0, np.int64), *times])
    schema = arrow_schema(stream)
    specs = {spec.name.lower(): spec for spec in source.columns}
    arrays: list[pa.Array] = []
    for name in names:
        if name == stream.event_time:
            arrays.append(pa.array(all_times).view(pa.timestamp("us")))
            continue
        column = stream.column(name)
        assert column is not None
        spec = specs.get(name.lower(), GeneratedColumn(name))
        tag = zlib.crc32(name.encode())
        first_row = _rows_before(source, start) if spec.distribution == "sequence" else 0
        parts = []
        for chunk, rows in zip(range(start, end), counts, strict=True):
            parts.append(draw(spec, column.type, _rng(source, _COLUMNS, chunk, tag), rows, first_row))
            first_row += rows
        arrays.append(to_arrow(spec, column.type, parts, all_times))
    positions = [
        np.arange(chunk << ROW_BITS, (chunk << ROW_BITS) + rows) for chunk, rows in _numbered(start, counts)
    ]
    arrays.append(pa.array(np.concatenate([np.empty(0, np.int64), *positions])))
    fields = [*(schema.field(name) for name in names), pa.field(POSITION_COLUMN, pa.int64())]
    return pa.table(arrays, schema=pa.schema(fields))


def _numbered(start: int, counts: list[int]) -> list[tuple[int, int]]:
    return list(enumerate(counts, start))


def _rng(source: GeneratorSource, *what: int) -> np.random.Generator:
    # A stream's seed may be negative; the entropy of numpy's generator may not.
    return np.random.default_rng([source.seed % 2**64, *what])


def _start_us(source: GeneratorSource) -> int:
    if source.start_us is None:
        raise InvalidGenerator(
            "the generator has no start yet",
            hint="Give it a start, or register its stream: it then starts at once.",
        )
    return source.start_us


def _length_us(source: GeneratorSource) -> int | None:
    """Event time that a bounded stream covers, µs: its number of rows divided by its rate."""
    return None if source.rows is None else math.ceil(source.rows * _SECOND_US / source.rate_per_s)


def _chunk_length_us(source: GeneratorSource, chunk: int) -> int:
    """Event time that a chunk covers, µs; the last chunk of a bounded stream is shorter."""
    length, step = _length_us(source), chunk_us(source)
    return step if length is None else min(max(length - chunk * step, 0), step)


def _times(source: GeneratorSource, chunk: int, rows: int) -> Ints:
    """Event times of a chunk, ascending, µs UTC."""
    offsets = _rng(source, _TIMES, chunk).integers(0, max(_chunk_length_us(source, chunk), 1), rows)
    offsets.sort()
    return offsets + (_start_us(source) + chunk * chunk_us(source))


def _counts(source: GeneratorSource, start: int, end: int) -> Ints:
    """Number of rows of each of the chunks [start, end)."""
    blocks = range(start // _CHUNKS_PER_BLOCK, -(-end // _CHUNKS_PER_BLOCK))
    counts: Ints = np.concatenate(
        [np.empty(0, np.int64), *(_block_counts(source, block) for block in blocks)]
    )
    before = blocks.start * _CHUNKS_PER_BLOCK
    return counts[start - before : end - before]


@lru_cache(maxsize=256)
def _block_counts(source: GeneratorSource, block: int) -> Ints:
    """Number of rows of every chunk of a block; the array is read-only."""
    first = block * _CHUNKS_PER_BLOCK
    length, step = _length_us(source), chunk_us(source)
    lengths = np.full(_CHUNKS_PER_BLOCK, step, np.int64)
    if length is not None:
        lengths = np.clip(length - step * np.arange(first, first + _CHUNKS_PER_BLOCK), 0, step)
    counts = _rng(source, _COUNTS, block).poisson(lengths * (source.rate_per_s / _SECOND_US))
    counts.setflags(write=False)
    return counts


def _rows_before(source: GeneratorSource, chunk: int) -> int:
    """Number of rows in all chunks before a chunk, which is the number of the chunk's first row."""
    block, inside = divmod(chunk, _CHUNKS_PER_BLOCK)
    whole = sum(_block_rows(source, earlier) for earlier in range(block))
    return whole + int(_block_counts(source, block)[:inside].sum())


@lru_cache(maxsize=65_536)
def _block_rows(source: GeneratorSource, block: int) -> int:
    return int(_block_counts(source, block).sum())

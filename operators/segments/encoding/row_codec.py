"""Rows as bytes: an Arrow IPC stream in which 64-bit numbers are narrowed to their range.

    _ts   1_700_000_000_000_000 ... +5_000_000     ->  uint32 0 ... 5_000_000, "from": 1_700_000_000_000_000
    _l0   0b0 | 0b1 << 19 | 0b11 << 18 | ...       ->  uint8 0 ... 20, "values": 21 words

Keys, event times, positions and lineage words each vary little within a batch or segment, and they are most
of the bytes that are sent to a bucket and stored in its state. Narrowing halves the bytes to shuffle and
store, and costs two passes over an array (frame of reference encoding; Goldstein, Ramakrishnan, Shaft, ICDE
1998). Rows have few distinct combinations of filter answers, so most lineage words are replaced by the number
of their value instead (dictionary encoding).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from operators.kernels.keys import Int64s, Words, numbered_if_few

#: Columns of packed rows that are int64 without NULLs.
KEY, TS, POS = "_key", "_ts", "_pos"

#: Type of lineage words that are already replaced by numbers of their values.
NUMBERED = pa.dictionary(pa.uint8(), pa.uint64())

_FROM, _VALUES = b"from", b"values"
_WIDE = ("int64", "uint64")
_NARROWER = (np.uint8, np.uint16, np.uint32)
#: Lineage words with at most this many distinct values are replaced by numbers of these values.
_MOST_VALUES = 1 << 8
#: Bytes of a distinct value in the metadata. Words are replaced only if there are at least this many rows per
#: distinct value.
_VALUE_BYTES = 20


def encode_rows(rows: pa.RecordBatch) -> bytes:
    """Return a record batch as bytes; keep its schema's metadata."""
    sink = pa.BufferOutputStream()
    write_rows(rows, sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def write_rows(rows: pa.RecordBatch, sink: pa.NativeFile) -> None:
    """Write one record batch in the form that ``encode_rows`` returns."""
    fields, columns = [], []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if field.type == NUMBERED:
            field, column = _as_numbered(field, column)
        elif field.type in (pa.int64(), pa.uint64()) and len(column) and not column.null_count:
            field, column = _narrowed(field, column)
        fields.append(field)
        columns.append(column)
    narrow = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))
    with pa.ipc.new_stream(sink, narrow.schema) as writer:
        writer.write_batch(narrow)


def decode_rows(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Read the result of ``encode_rows``; columns that were not narrowed remain views of ``data``.

    Raises:
        EOFError: There is no record batch.
        pyarrow.ArrowInvalid: The bytes are not an Arrow IPC stream.
        ValueError: The metadata was not written by ``encode_rows``.
    """
    return widened(narrow_rows(data))


def narrow_rows(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Read the result of ``encode_rows`` in stored form; all columns are views of ``data``.

    Raises:
        EOFError: There is no record batch.
        pyarrow.ArrowInvalid: The bytes are not an Arrow IPC stream.
    """
    with pa.ipc.open_stream(data) as reader:
        try:
            return reader.read_next_batch()
        except StopIteration as end:
            # A StopIteration would silently end a generator that calls this function.
            raise EOFError("the stream ends before its record batch") from end


def rows_with(narrow: pa.RecordBatch, name: str, values: Int64s) -> Int64s:
    """Return the indices of the rows whose value in a column is one of ``values``, int64[m], ascending.

    Args:
        narrow: Rows as they are stored.
        name: An ascending int64 column without NULLs.
        values: int64[k], k > 0, ascending, all within the range of the column.
    """
    stored = narrow.column(name).to_numpy()
    facts = narrow.schema.field(name).metadata or {}
    smallest = int(facts[_FROM].split()[1]) if _FROM in facts else 0
    distinct = values[np.append(True, values[1:] != values[:-1])]
    sought = (distinct - smallest).astype(stored.dtype)
    first, end = (np.searchsorted(stored, sought, side) for side in ("left", "right"))
    lengths = end - first
    # The result concatenates runs of indices, so each run starts where the previous run ends.
    starts = first - np.cumsum(lengths) + lengths
    rows: Int64s = np.repeat(starts, lengths) + np.arange(lengths.sum())
    return rows


def widened(narrow: pa.RecordBatch) -> pa.RecordBatch:
    """Return stored rows, or some of them, with numbers widened to their original type.

    Raises:
        ValueError: The metadata was not written by ``encode_rows``.
    """
    fields, columns = [], []
    for field, column in zip(narrow.schema, narrow.columns, strict=True):
        if field.metadata and _FROM in field.metadata:
            field, column = _widened(field, column)
        elif field.metadata and _VALUES in field.metadata:
            field, column = _looked_up(field, column)
        fields.append(field)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, narrow.schema.metadata))


def _narrowed(field: pa.Field, column: pa.Array) -> tuple[pa.Field, pa.Array]:
    values = column.to_numpy()
    smallest = values.min()
    span = int(values.max()) - int(smallest)
    width = next((width for width in _NARROWER if span <= np.iinfo(width).max), None)
    if field.type == pa.uint64() and width is not np.uint8:
        few = numbered_if_few(values, _MOST_VALUES)
        if few is not None and _VALUE_BYTES * len(few[1]) <= len(values):
            return _with_values(field, pa.array(few[0].astype(np.uint8)), few[1])
    if width is None:
        return field, column
    # "from" also has the original type of the numbers.
    facts = {**(field.metadata or {}), _FROM: f"{field.type} {smallest}"}
    narrow = pa.array((values - smallest).astype(width))
    return pa.field(field.name, narrow.type, field.nullable, facts), narrow


def _as_numbered(field: pa.Field, column: pa.DictionaryArray) -> tuple[pa.Field, pa.Array]:
    """Narrow words that PACK has already replaced by numbers (``operators.pack.lineage_words``)."""
    if _VALUE_BYTES * len(column.dictionary) <= len(column):
        return _with_values(field, column.indices, column.dictionary.to_numpy())
    words = column.dictionary_decode()
    field = field.with_type(words.type)
    return _narrowed(field, words) if len(words) else (field, words)


def _with_values(field: pa.Field, numbers: pa.Array, values: Words) -> tuple[pa.Field, pa.Array]:
    facts = {**(field.metadata or {}), _VALUES: " ".join(map(str, values.tolist()))}
    return pa.field(field.name, numbers.type, field.nullable, facts), numbers


def _widened(field: pa.Field, column: pa.Array) -> tuple[pa.Field, pa.Array]:
    facts = dict(field.metadata)
    kind, _, smallest = facts.pop(_FROM).decode().partition(" ")
    if kind not in _WIDE:
        raise ValueError(f'column "{field.name}" has a type that is not narrowed: "{kind}"')
    wide = np.dtype(kind).type
    values = column.to_numpy().astype(wide)
    values += wide(smallest)
    column = pa.array(values)
    return pa.field(field.name, column.type, field.nullable, facts or None), column


def _looked_up(field: pa.Field, column: pa.Array) -> tuple[pa.Field, pa.Array]:
    facts = dict(field.metadata)
    values = np.array(facts.pop(_VALUES).split(), dtype=np.uint64)
    words = pa.array(values[column.to_numpy()])
    return pa.field(field.name, words.type, field.nullable, facts or None), words

"""Rows as bytes: an Arrow IPC stream whose 64-bit numbers are as narrow as their range.

    _ts   1_700_000_000_000_000 ... +5_000_000     ->  uint32 0 ... 5_000_000, "from": 1_700_000_000_000_000

Keys, event times and positions of a batch or segment lie close together, and they are most of what travels to a
bucket and rests in its state: half as many bytes to shuffle and to store for two passes over an array (frame of
reference encoding; Goldstein, Ramakrishnan, Shaft, ICDE 1998).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

#: Columns of packed rows that are int64 without NULLs.
KEY, TS, POS = "_key", "_ts", "_pos"

_NARROWED = (KEY, TS, POS)
_FROM = b"from"
_LARGEST = 2**32 - 1


def encode_rows(rows: pa.RecordBatch) -> bytes:
    """Write one record batch; its schema's metadata stays."""
    fields, columns = [], []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if field.name in _NARROWED and len(column):
            values = column.to_numpy()
            smallest = int(values.min())
            if int(values.max()) - smallest <= _LARGEST:
                column = pa.array((values - smallest).astype(np.uint32))
                field = pa.field(field.name, column.type, metadata={_FROM: str(smallest)})
        fields.append(field)
        columns.append(column)
    narrow = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, narrow.schema) as writer:
        writer.write_batch(narrow)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_rows(data: bytes | pa.Buffer) -> pa.RecordBatch:
    """Read what ``encode_rows`` wrote; columns that were not narrowed stay views of ``data``.

    Raises:
        EOFError: There is no record batch.
        pyarrow.ArrowInvalid: The bytes are not an Arrow IPC stream.
    """
    with pa.ipc.open_stream(data) as reader:
        try:
            narrow = reader.read_next_batch()
        except StopIteration as end:
            # Left alone it would end the generator around us without a word.
            raise EOFError("the stream ends before its record batch") from end
    fields, columns = [], []
    for field, column in zip(narrow.schema, narrow.columns, strict=True):
        if field.metadata and _FROM in field.metadata:
            column = pa.array(column.to_numpy() + np.int64(int(field.metadata[_FROM])))
            field = pa.field(field.name, column.type)
        fields.append(field)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, narrow.schema.metadata))

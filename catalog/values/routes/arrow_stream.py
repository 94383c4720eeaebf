"""A batch of columns as bytes: a compressed Arrow IPC stream, encoded and decoded in the calling thread."""

from __future__ import annotations

import pyarrow as pa

# Arrow's threads cost more CPU time than the work itself: without them, reading a small table takes 10 µs
# instead of 50 µs, and reading 20,000 routes of 300 queries takes 38 µs instead of 92 µs.
_WRITTEN = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_READ = pa.ipc.IpcReadOptions(use_threads=False)


def encode_batch(batch: pa.RecordBatch) -> bytes:
    """Return a batch as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=_WRITTEN) as stream:
        stream.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def decode_batch(data: bytes) -> pa.RecordBatch:
    """Return the batch that ``encode_batch`` encoded."""
    with pa.ipc.open_stream(data, options=_READ) as stream:
        return stream.read_next_batch()

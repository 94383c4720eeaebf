"""The codec and the sort of rows, each against its plain twins.

    python -m tests.bench.row_forms [--rounds 3]      about ten minutes

First each function by itself, on the shapes that it meets in a batch of many-keys: half a million rows, two
buckets. Then the workers' own code in this process (``service.calibrate.pipeline``), one function at a time
replaced by its twin, in another order each round: CPU time of a batch of a million rows, and bytes of the
segments that it stores. Figures are medians over the rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import typer

from operators.kernels.distinct import numbered
from operators.kernels.keys import Bools, Int64s, Words, bucket_of
from operators.kernels.sort import sort_into_buckets
from operators.segments.row_codec import KEY, NUMBERED, POS, TS, decode_rows, encode_rows
from service.calibrate.pipeline import measure
from service.calibrate.runs import plans, warm_up
from service.calibrate.workload import Selection, SyntheticWorkload, WindowQuery
from service.workers.worker_daemon import keep_freed_memory
from tests.bench.measuring import Stages, in_turn

ROWS = 500_000
#: Batches measured once the windows are full.
BATCHES = 8
LZ4 = pa.ipc.IpcWriteOptions(compression="lz4")

_STREAMS: dict[str, Any] = {"rate_a": 100_000, "rate_b": 100_000, "batch_s": 5.0, "keys": 5_000_000}


def _filtered(number: int) -> WindowQuery:
    """Return one of forty queries with windows up to 30 s, each with a filter of its own on one side."""
    window_s, below = 0.75 * number, Selection("v", round(0.01 * number, 2))
    return WindowQuery(window_s, window_s, *((below, None) if number % 2 else (None, below)))


WORKLOADS = (
    SyntheticWorkload("many-keys", tuple(WindowQuery(2.5 * n, 2.5 * n) for n in range(1, 13)), **_STREAMS),
    SyntheticWorkload("filters", tuple(_filtered(n) for n in range(1, 41)), **_STREAMS),
)


def _write_plain(
    rows: pa.RecordBatch, sink: pa.NativeFile, options: pa.ipc.IpcWriteOptions | None = None
) -> None:
    fields, columns = [], []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        wide = column.dictionary_decode() if field.type == NUMBERED else column
        fields.append(field.with_type(wide.type))
        columns.append(wide)
    whole = pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, rows.schema.metadata))
    with pa.ipc.new_stream(sink, whole.schema, options=options) as writer:
        writer.write_batch(whole)


def _plain_rows(rows: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    """Return rows as a plain Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    _write_plain(rows, sink, options)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _buckets_by_numpy(key: Int64s, bucket: Int64s, valid: Bools, buckets: int) -> tuple[Int64s, Int64s]:
    rows = np.flatnonzero(valid)
    rows = rows[np.argsort(key[rows], kind="stable")]
    found = bucket[rows].astype(np.uint16)
    starts = np.concatenate(([0], np.cumsum(np.bincount(found, minlength=buckets))))
    return rows[np.argsort(found, kind="stable")], starts.astype(np.int64)


def _codec(options: pa.ipc.IpcWriteOptions | None) -> dict[str, Callable[..., Any]]:
    def encode(rows: pa.RecordBatch) -> bytes:
        return _plain_rows(rows, options)

    def write(rows: pa.RecordBatch, sink: pa.NativeFile) -> None:
        _write_plain(rows, sink, options)

    return {
        "operators.pack.payload.encode_rows": encode,
        "operators.segments.segment.encode_rows": encode,
        "operators.segments.patch.encode_rows": encode,
        "operators.segments.segment_files.write_rows": write,
    }


#: Functions that are replaced, with their twins, by name of the form.
FORMS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "as it is": {},
    "rows in plain Arrow IPC": _codec(None),
    "rows in Arrow IPC with lz4": _codec(LZ4),
    "PACK sorts with numpy": {"operators.pack.pack.sort_into_buckets": _buckets_by_numpy},
}


@contextmanager
def replaced(form: str) -> Iterator[None]:
    """Replace the functions of a form by their twins."""
    with ExitStack() as stack:
        for name, twin in FORMS[form].items():
            stack.enter_context(patch(name, twin))
        yield


def shapes() -> Iterator[tuple[str, dict[str, Callable[[], Any]]]]:
    """Yield for each shape the functions that do the same to it, ours first."""
    rng = np.random.default_rng(1)
    below, hashes = rng.integers(0, 5_000_000, ROWS), rng.integers(-(2**63), 2**63 - 1, ROWS)
    for name, key in (("keys below 5 million", below), ("hashes", hashes)):
        yield f"{ROWS:,} {name} into two buckets", _sorts(key)
    for values in (21, 256, 4_000):
        words = rng.choice(rng.integers(0, 2**63, values).astype(np.uint64), ROWS)
        yield f"{ROWS:,} words of {values:,} values", _numberings(words)
    yield from _codecs(_segment(np.sort(below), rng.choice(np.arange(21, dtype=np.uint64), ROWS)))


def _sorts(key: Int64s) -> dict[str, Callable[[], Any]]:
    bucket, valid = bucket_of(key, 2), np.ones(len(key), dtype=np.bool_)
    column = pa.array(key)
    return {
        "sort_into_buckets": lambda: sort_into_buckets(key, bucket, valid, 2),
        'np.argsort(kind="stable")': lambda: _buckets_by_numpy(key, bucket, valid, 2),
        "pc.array_sort_indices, one bucket": lambda: pc.array_sort_indices(column),
    }


def _numberings(words: Words) -> dict[str, Callable[[], Any]]:
    column = pa.array(words)
    return {
        "pd.factorize": lambda: numbered(words),
        "np.unique": lambda: np.unique(words, return_inverse=True),
        "pc.dictionary_encode": column.dictionary_encode,
    }


def _codecs(rows: pa.RecordBatch) -> Iterator[tuple[str, dict[str, Callable[[], Any]]]]:
    writers: dict[str, Callable[[], bytes]] = {
        "encode_rows": lambda: encode_rows(rows),
        "Arrow IPC": lambda: _plain_rows(rows),
        "Arrow IPC with lz4": lambda: _plain_rows(rows, LZ4),
    }
    yield f"{ROWS:,} rows as bytes", dict(writers)
    readers: dict[str, Callable[[], Any]] = {}
    for name, write in writers.items():
        data = write()
        readers[f"{name} ({len(data):,} bytes)"] = lambda data=data: decode_rows(data)  # type: ignore[misc]
    yield "these bytes as rows", readers


def _segment(key: Int64s, words: Words) -> pa.RecordBatch:
    row = np.random.default_rng(2).permutation(len(key))
    columns = {KEY: key, TS: 1_700_000_000_000_000 + 10 * row, POS: (7 << 32) + row, "_l0": words}
    return pa.RecordBatch.from_arrays([pa.array(c) for c in columns.values()], names=list(columns))


def by_themselves(rounds: int) -> Iterator[str]:
    """Yield a line per shape: median CPU time of each function, ms."""
    for shape, same in shapes():
        for function in same.values():
            function()
        stages = Stages()
        for name in in_turn(list(same), 3 * rounds):
            with stages.timed(name):
                same[name]()
        yield f"{shape}: " + "; ".join(f"{name} {stages.median_ms(name):.1f} ms" for name in same)


def in_the_pipeline(workload: SyntheticWorkload, rounds: int) -> Iterator[str]:
    """Yield a line per form: CPU time of a batch in PACK and in the chain, and the bytes that it stores."""
    planned = plans(workload, ["mem-opt"])
    warm_up(workload)
    found: dict[str, list[tuple[float, float, float]]] = {form: [] for form in FORMS}
    for form in in_turn(list(FORMS), rounds):
        with replaced(form):
            (ran,) = measure(workload, planned, batches=BATCHES).values()
        pack_ms, chain_ms = (1e3 * s / ran.batches for s in (ran.pack_s, ran.chain_s))
        found[form].append((pack_ms, chain_ms, ran.stored_bytes / ran.batches))
    own_ms = statistics.median(pack + chain for pack, chain, _ in found["as it is"])
    for form, runs in found.items():
        pack_ms, chain_ms, stored = (statistics.median(column) for column in zip(*runs, strict=True))
        both_ms = statistics.median(pack + chain for pack, chain, _ in runs)
        yield (
            f"{workload.name}, {form}: PACK {pack_ms:.0f} ms, chain {chain_ms:.0f} ms, both {both_ms:.0f} ms "
            f"({both_ms / own_ms:.2f}), {stored:,.0f} bytes stored"
        )


def main(rounds: Annotated[int, typer.Option(help="Rounds; medians are printed.")] = 3) -> None:
    """Measure all of it and print it."""
    keep_freed_memory()
    for line in by_themselves(rounds):
        typer.echo(line)
    for workload in WORKLOADS:
        for line in in_the_pipeline(workload, rounds):
            typer.echo(line)


if __name__ == "__main__":
    typer.run(main)

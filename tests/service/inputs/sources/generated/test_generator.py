from __future__ import annotations

import itertools
import math
import pickle
import re
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.columns.arrow_types import arrow_type
from catalog.store.store import Store
from catalog.values.stream import Column, GeneratedColumn, GeneratorSource, Stream
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.inputs.reading.read import read_partition
from service.inputs.sources.generated.generator import chunk_us, chunks_available, generator_pieces
from tests.examples import examples
from tests.service.inputs.streams import EVERY_TYPE, stream_of

START_US = 1_356_998_400_000_000


def generated(source: GeneratorSource, columns: tuple[Column, ...] = EVERY_TYPE) -> Stream:
    return stream_of(source, columns=columns)


def read_chunks(store: Store, stream: Stream, start: int, end: int, **options: int) -> pa.Table:
    (parts,) = Inputs(store, None, **options).partitions([(Lane(stream), start, end)])
    return pa.concat_tables([read_partition(stream, pickle.loads(pickle.dumps(p))) for p in parts])


def one_column(
    column: Column, spec: GeneratedColumn | None, store: Store, rows: int = 2000
) -> pa.ChunkedArray:
    source = GeneratorSource(1000.0, columns=() if spec is None else (spec,), rows=rows, start_us=START_US)
    stream = generated(source, (Column("ts", "timestamp"), column))
    return read_chunks(store, stream, 0, chunks_available(source, 0)).column(column.name)


ALL_SPECS = (
    GeneratedColumn("l", "sequence"),
    GeneratedColumn("x", "normal", low=5, high=2),
    GeneratedColumn("i", "zipf", cardinality=50),
    GeneratedColumn("s", "choice", values=("a", "b", "c")),
)


@settings(max_examples=examples(25), deadline=None)
@given(
    seed=st.integers(-5, 2**70),
    rate=st.floats(0.5, 300_000),
    first=st.integers(0, 3000),
    cuts=st.lists(st.integers(0, 6), max_size=3),
    shared=st.integers(1, 60_000),
)
def test_any_split_of_the_chunks_gives_the_same_rows(
    seed: int, rate: float, first: int, cuts: list[int], shared: int
) -> None:
    source = GeneratorSource(rate, seed, ALL_SPECS, start_us=START_US)
    stream = generated(source)
    unused_store: Store = None  # type: ignore[assignment]  # generators need no catalog
    bounds = sorted({first, first + 6, *(first + c for c in cuts)})
    whole = read_chunks(unused_store, stream, first, first + 6, rows_per_partition=10**9)
    parts = [
        read_chunks(unused_store, stream, start, end, rows_per_partition=shared)
        for start, end in itertools.pairwise(bounds)
    ]
    assert pa.concat_tables(parts).equals(whole)
    pieces = generator_pieces(stream, source, first, first + 6)
    assert sum(p.rows for p in pieces) == whole.num_rows

    positions = whole.column("_pos").to_numpy()
    times = whole.column("ts").cast(pa.int64()).to_numpy()
    assert (np.diff(positions) > 0).all()
    assert (np.diff(times) >= 0).all()
    chunks = (times - START_US) // chunk_us(source)
    assert (chunks == positions >> 32).all()


def test_a_column_does_not_depend_on_the_others_nor_on_what_is_read(store: Store) -> None:
    source = GeneratorSource(1000.0, 3, ALL_SPECS, rows=5000, start_us=START_US)
    stream = generated(source)
    ((partition,),) = Inputs(store, None).partitions([(Lane(stream), 0, 1)])
    whole = read_partition(stream, partition)
    assert read_partition(stream, partition, ["s"]).equals(whole.select(["ts", "s", "_pos"]))
    fewer = replace(stream, columns=tuple(c for c in EVERY_TYPE if c.name in ("ts", "s")))
    assert read_partition(fewer, partition).equals(whole.select(["ts", "s", "_pos"]))


def test_arrivals_are_poisson() -> None:
    source = GeneratorSource(200.0, seed=7, start_us=0)
    counts = [p.rows for p in generator_pieces(generated(source), source, 0, 5000)]
    # Five deviations of the mean; a Poisson count's variance is its mean.
    assert abs(np.mean(counts) - 200) < 5 * math.sqrt(200 / 5000)
    assert abs(np.var(counts) / 200 - 1) < 5 * math.sqrt(2 / 5000)


def test_gaps_between_rows_are_exponential(store: Store) -> None:
    stream = generated(GeneratorSource(1000.0, rows=50_000, start_us=0), (Column("ts", "timestamp"),))
    gaps = np.diff(read_chunks(store, stream, 0, 3).column("ts").cast(pa.int64()).to_numpy())
    assert abs(gaps.mean() / 1000 - 1) < 0.05
    assert abs(gaps.std() / gaps.mean() - 1) < 0.05
    assert abs((gaps > 1000).mean() - math.exp(-1)) < 0.02


def test_another_seed_gives_other_rows(store: Store) -> None:
    tables = [
        read_chunks(store, generated(GeneratorSource(1000.0, seed, rows=1000, start_us=0)), 0, 1)
        for seed in (1, 2)
    ]
    assert not tables[0].equals(tables[1])


@pytest.mark.parametrize("rate", [0.01, 1.0, 777.0, 1e6])
def test_a_bounded_stream_has_about_its_rows_and_ends(rate: float, store: Store) -> None:
    source = GeneratorSource(rate, rows=40_000, start_us=START_US)
    stream = generated(source)
    inputs = Inputs(store, None, clock_us=lambda: 0)  # the clock does not matter to it
    end = inputs.end(stream)
    pieces = inputs.pending(Lane(stream), 0, end + 100)
    assert pieces[-1].end == end
    assert abs(sum(p.rows for p in pieces) - 40_000) < 5 * math.sqrt(40_000)
    assert inputs.pending(Lane(stream), end, 10) == ()
    newest = max(p.t_max_us for p in pieces if p.t_max_us is not None)
    assert newest - START_US <= 40_000 / rate * 1e6 + 1


def test_no_rows_are_no_chunks(store: Store) -> None:
    assert Inputs(store, None).end(generated(GeneratorSource(5.0, rows=0, start_us=0))) == 0


def test_an_endless_stream_keeps_in_step_with_the_clock(store: Store) -> None:
    stream = generated(GeneratorSource(10.0, start_us=START_US))
    now = [START_US - 1]
    inputs = Inputs(store, None, clock_us=lambda: now[0])
    assert inputs.end(stream) == 0
    now[0] = START_US + 3_999_999
    assert [p.position for p in inputs.pending(Lane(stream), 1, 10)] == [1, 2]
    (partitions,) = inputs.partitions([(Lane(stream), 0, 3)])
    now[0] = START_US  # a replay does not ask the clock
    assert inputs.partitions([(Lane(stream), 0, 3)]) == [partitions]


@pytest.mark.parametrize("column", EVERY_TYPE[1:], ids=lambda c: c.type)
def test_a_column_not_named_is_uniform_over_a_default(column: Column, store: Store) -> None:
    values = one_column(column, None, store)
    assert values.type == arrow_type(column.type)
    assert values.null_count == 0
    assert len(set(values.to_pylist())) >= (2 if column.type == "boolean" else 25)


def test_the_distributions_give_what_they_say(store: Store) -> None:
    def numbers(column_type: str, **options) -> np.ndarray:
        return one_column(Column("c", column_type), GeneratedColumn("c", **options), store).to_numpy()

    uniform = numbers("int", low=-3, high=4)
    assert set(uniform) == set(range(-3, 4))
    normal = numbers("double", distribution="normal", low=10, high=2)
    assert abs(normal.mean() - 10) < 0.3
    assert abs(normal.std() - 2) < 0.3
    zipf = numbers("bigint", distribution="zipf", cardinality=100, skew=1.0, low=5)
    counts = np.bincount(zipf, minlength=105)[5:]
    assert counts.sum() == len(zipf)
    harmonic = sum(1 / k for k in range(1, 101))
    assert abs(counts[0] / len(zipf) - 1 / harmonic) < 0.05
    assert abs(counts[1] / len(zipf) - 0.5 / harmonic) < 0.05
    sequence = numbers("bigint", distribution="sequence", low=100)
    assert (sequence == np.arange(100, 100 + len(sequence))).all()
    choice = one_column(
        Column("c", "decimal(5,1)"), GeneratedColumn("c", "choice", values=("1.5", "-2")), store
    ).to_pylist()
    assert set(choice) == {Decimal("1.5"), Decimal("-2.0")}
    decimals = one_column(
        Column("c", "decimal(20,2)"), GeneratedColumn("c", low=-1, high=1), store
    ).to_pylist()
    assert min(decimals) < Decimal("-0.9")
    assert max(decimals) > Decimal("0.9")
    assert all(re.fullmatch(r"-?[01]\.\d\d", str(d)) for d in decimals)


def test_sequence_numbers_go_on_across_blocks_of_chunks(store: Store) -> None:
    source = GeneratorSource(3.0, columns=(GeneratedColumn("l", "sequence"),), start_us=0)
    stream = generated(source)
    before = sum(p.rows for p in generator_pieces(stream, source, 0, 2100))
    assert read_chunks(store, stream, 2100, 2200).column("l")[0].as_py() == before

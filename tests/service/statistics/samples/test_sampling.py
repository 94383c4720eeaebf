"""Sampled profiles against DuckDB's exact numbers over the same files."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.store.store import Store
from catalog.values.query import Query
from catalog.values.statistics import Measure, Profile
from catalog.values.stream import (
    FilesSource,
    GeneratedColumn,
    GeneratorSource,
    HttpSource,
    Source,
    Stream,
)
from operators.kernels.keys import bucket_of, join_key
from planner.bind.bind import bind
from planner.build.build_plan import build_plan
from service.inputs.reading.sample import (
    EDGE_FILES,
    SAMPLE_ROWS,
    CatalogRows,
    RowSample,
    WorkloadRows,
)
from service.inputs.sources.listed.files import list_files
from service.inputs.sources.posted.http_log import EventLog
from service.statistics.samples.sample_answers import LEAST_ROWS, MAX_FREQUENT
from service.statistics.samples.sampling import GROWTH, SampleCache, sample_profile
from tests.builders import a_query, a_stream
from tests.empty_catalog import prepared
from tests.examples import examples

NOW_US = 1_700_000_000_000_000


def stream_of(stream_id: int, name: str, source: Source) -> Stream:
    columns = (("k", "bigint"), ("s", "string"), ("v", "double"))
    return a_stream(stream_id, columns=columns, name=name, source=source)


def joined(
    filter_a: str | None = None, filter_b: str | None = None, *, key: str = "k", number: int = 1
) -> Query:
    return a_query(
        number,
        filter_a=filter_a,
        filter_b=filter_b,
        key=((key, key),),
        key_types=("bigint" if key == "k" else "string",),
        columns_a=(key, "v"),
        columns_b=(key, "v"),
    )


def rows_of(
    rng: np.random.Generator,
    rows: int,
    keys: int,
    *,
    skew: float = 0.0,
    first_us: int = 0,
    gap_us: int = 1000,
) -> pa.Table:
    """Rows at a constant rate; some keys are NULL."""
    weights = np.arange(1, keys + 1, dtype=np.float64) ** -skew
    key = rng.choice(keys, rows, p=weights / weights.sum())
    ts = first_us + gap_us * np.arange(rows, dtype=np.int64)
    return pa.table(
        {
            "ts": pa.array(ts).cast(pa.timestamp("us")),
            "k": pa.array(key, pa.int64(), mask=rng.random(rows) < 0.1),
            "s": pa.array([f"key {number}" for number in key]),
            "v": pa.array(rng.random(rows), mask=rng.random(rows) < 0.05),
        }
    )


def write_parts(table: pa.Table, directory: Path, files: int) -> None:
    directory.mkdir(parents=True)
    cuts = np.linspace(0, table.num_rows, files + 1).astype(int)
    for n, (first, end) in enumerate(itertools.pairwise(cuts)):
        pq.write_table(table.slice(first, end - first), directory / f"{n:05d}.parquet")


def one(sql: str, **tables: pa.Table) -> float:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        found = connection.execute(sql).fetchone()
    assert found is not None
    return float(found[0])


def exact_join(a: pa.Table, b: pa.Table, key: str = "k") -> float:
    counts = [f"(SELECT {key}, count({key})::DOUBLE n FROM {t} GROUP BY {key}) {t}" for t in "ab"]
    return one(
        f"SELECT (SELECT sum(a.n * b.n) FROM {counts[0]} JOIN {counts[1]} USING ({key}))"
        f" / ((SELECT count({key}) FROM a)::DOUBLE * (SELECT count({key}) FROM b))",
        a=a,
        b=b,
    )


def sampled(
    directory: Path,
    queries: Sequence[Query],
    file_format: Literal["parquet", "csv", "jsonl"] = "parquet",
    files_per_batch: int | None = None,
) -> Profile:
    streams = [
        stream_of(n, name, FilesSource(file_format, str(directory / name), files_per_batch, settle_us=0))
        for n, name in ((1, "A"), (2, "B"))
    ]
    return sample_profile(WorkloadRows(lambda: NOW_US), streams, queries, clock_us=lambda: NOW_US)


@settings(max_examples=examples(15), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.tuples(st.integers(1_000, 5_000), st.integers(1_000, 5_000)),
    keys=st.integers(1, 300),
    skew=st.sampled_from([0.0, 1.0, 1.5]),
    files=st.integers(1, 7),
    limits=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    key=st.sampled_from(["k", "s"]),
)
def test_small_streams_are_sampled_whole(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    rows: tuple[int, int],
    keys: int,
    skew: float,
    files: int,
    limits: tuple[float, float],
    key: str,
) -> None:
    rng = np.random.default_rng(seed)
    tables = [rows_of(rng, count, keys, skew=skew) for count in rows]
    directory = tmp_path_factory.mktemp("streams")
    for name, table in zip("AB", tables, strict=True):
        write_parts(table, directory / name, files)
    texts = [f'"v" < {limit!r}' for limit in limits]

    found = sampled(directory, [joined(texts[0], texts[1], key=key)])

    assert [s.rate_per_s.value for s in found.streams] == pytest.approx([1000.0, 1000.0])
    assert [(f.stream_id, f.sql) for f in found.filters] == [(1, texts[0]), (2, texts[1])]
    for profile, table in zip(found.filters, tables, strict=True):
        exact = one(f"SELECT avg(coalesce({profile.sql}, false)::INT) FROM t", t=table)
        assert profile.selectivity == Measure(pytest.approx(exact), "sampled", NOW_US)
    (family,) = found.families
    exact = exact_join(tables[0], tables[1], key)
    assert family.join_selectivity.value == pytest.approx(exact, rel=0.05)
    for measure, table in ((family.keys_a, tables[0]), (family.keys_b, tables[1])):
        assert measure is not None
        assert measure.value == one(f"SELECT count(DISTINCT {key}) FROM t", t=table)
    for number, table in enumerate(tables):
        key_type = "bigint" if key == "k" else "string"
        keys, valid = join_key(table, [key], [key_type])
        rows = Counter(keys[valid].tolist())
        shares = {f.key: (f.share_a, f.share_b)[number] for f in family.frequent}
        told = {k: n / rows.total() for k, n in rows.items() if n >= LEAST_ROWS}
        found_shares = {k: share for k, share in shares.items() if share}
        assert found_shares == pytest.approx({k: told[k] for k in found_shares})
        assert len(found_shares) == min(len(told), MAX_FREQUENT)
    homes = [f.hash % 7 for f in family.frequent]
    assert homes == bucket_of(np.array([f.key for f in family.frequent], dtype=np.int64), 7).tolist()
    assert family.skew_a is not None
    assert family.skew_a.value == pytest.approx(
        one(
            f"SELECT sum(n * n) / (sum(n) * sum(n) / count(*)) FROM"
            f" (SELECT count(*) n FROM t WHERE {key} IS NOT NULL GROUP BY {key})",
            t=tables[0],
        )
    )


@pytest.mark.parametrize("files", [1, 3, 600])
def test_large_streams_are_sampled_over_all_their_length(tmp_path: Path, files: int) -> None:
    """The filter's selectivity drifts from 0 to 1, so only a sample of all parts is near its mean."""
    rng = np.random.default_rng(7)
    tables = []
    for name in "AB":
        table = rows_of(rng, 600_000, 500, skew=1.0)
        drift = pa.array(np.linspace(0, 1, table.num_rows))
        tables.append(table.set_column(3, "v", drift))
        write_parts(tables[-1], tmp_path / name, files)

    found = sampled(tmp_path, [joined('"v" > 0.5')], files_per_batch=2)

    assert found.filters[0].selectivity.value == pytest.approx(0.5, abs=0.07)
    assert found.streams[0].rate_per_s.value == pytest.approx(1000, rel=0.01)
    assert found.families[0].join_selectivity.value == pytest.approx(exact_join(*tables), rel=0.1)
    assert found.batch_s == Measure(pytest.approx(min(2, files) * 600 / files, rel=0.01), "sampled", NOW_US)
    assert found.input_s == pytest.approx(600, rel=0.01)


@pytest.mark.parametrize("files", [1, 40])
def test_a_sample_is_bounded(tmp_path: Path, files: int) -> None:
    write_parts(rows_of(np.random.default_rng(1), 400_000, 10), tmp_path / "A", files)
    stream = stream_of(1, "A", FilesSource("parquet", str(tmp_path / "A")))

    sample = WorkloadRows().sample(stream, ["v"])

    assert sample is not None
    assert 0.9 * SAMPLE_ROWS < sample.table.num_rows <= SAMPLE_ROWS
    assert set(sample.table.column_names) == {"ts", "v", "_pos"}


def test_text_files_are_sampled_too_but_not_huge_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    table = rows_of(rng, 2_000, 20)
    for name in "AB":
        (tmp_path / name).mkdir()
        pcsv.write_csv(table.slice(0, 1_000), tmp_path / name / "0.csv")
        pcsv.write_csv(table.slice(1_000), tmp_path / name / "1.csv")

    found = sampled(tmp_path, [joined('"v" < 0.3')], "csv")

    exact = one("SELECT avg(coalesce(v < 0.3, false)::INT) FROM t", t=table)
    assert found.filters[0].selectivity.value == pytest.approx(exact)
    assert found.streams[0].rate_per_s.value == pytest.approx(1000)
    monkeypatch.setattr("service.inputs.reading.sample.MAX_TEXT_BYTES", 100)
    assert sampled(tmp_path, [joined('"v" < 0.3')], "csv") == Profile()


def test_shares_of_bands_are_those_of_all_pairs(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    tables = {name: rows_of(rng, 1500, 40) for name in ("A", "B")}
    streams = []
    for number, (name, table) in enumerate(tables.items(), 1):
        write_parts(table, tmp_path / name, 3)
        streams.append(stream_of(number, name, FilesSource("parquet", str(tmp_path / name), 1)))
    where = "a.k < b.k AND a.v BETWEEN b.v - 0.02 AND b.v + 0.01"
    query = bind(f"SELECT a.k FROM A [NOW] a, B [NOW] b WHERE {where}", {s.name: s for s in streams})
    found = sample_profile(WorkloadRows(), streams, [query])
    conditions = {"v": "a.v BETWEEN b.v - 0.02 AND b.v + 0.01", "k": "a.k <= b.k"}
    assert {each.band.column for each in found.bands} == conditions.keys()
    for each in found.bands:
        condition = conditions[each.band.column]
        exact = one(f"SELECT avg(coalesce({condition}, false)::INT) FROM a, b", a=tables["A"], b=tables["B"])
        assert each.share.value == pytest.approx(exact, rel=1e-6)
    (family,) = build_plan([query], {s.id: s for s in streams}, profile=found).families
    assert family.band is not None
    assert family.band.column == "v"


def test_stored_bytes_are_those_of_a_segment(tmp_path: Path) -> None:
    """A key of 1 byte, event time of 4, position of 2, lineage of 1, and a double with its validity bit."""
    for name in "AB":
        write_parts(rows_of(np.random.default_rng(2), 20_000, 100), tmp_path / name, 1)

    found = sampled(tmp_path, [joined('"v" < 0.5')])

    assert [s.row_bytes is not None and s.row_bytes.value for s in found.streams] == [
        pytest.approx(16.2, abs=0.2),
        pytest.approx(15.2, abs=0.2),
    ]


def test_a_broken_file_is_left_out(tmp_path: Path) -> None:
    for name in "AB":
        write_parts(rows_of(np.random.default_rng(2), 1_000, 10), tmp_path / name, 2)
    (tmp_path / "A" / "00001.parquet").write_bytes(b"no parquet")

    found = sampled(tmp_path, [joined('"v" < 0.5')])

    head = pq.read_table(tmp_path / "A" / "00000.parquet")
    assert found.filters[0].selectivity.value == pytest.approx(
        one("SELECT avg(coalesce(v < 0.5, false)::INT) FROM t", t=head)
    )


def test_streams_without_rows_tell_nothing(tmp_path: Path) -> None:
    for name in "AB":
        (tmp_path / name).mkdir()
    assert sampled(tmp_path, [joined('"v" < 0.5')]) == Profile()
    posted = [stream_of(n, name, HttpSource()) for n, name in ((1, "A"), (2, "B"))]
    assert sample_profile(WorkloadRows(), posted, [joined()]) == Profile()
    assert sample_profile(WorkloadRows(), posted, []) == Profile()


def test_a_generator_has_the_rate_it_declares_and_the_rows_to_come(tmp_path: Path) -> None:
    columns = (GeneratedColumn("k", "uniform", 0, 40), GeneratedColumn("v", "uniform", 0, 1))
    endless = GeneratorSource(5_000.0, seed=1, columns=columns)
    bounded = GeneratorSource(200.0, seed=2, columns=columns, rows=3_000, start_us=0)
    streams = [stream_of(1, "A", endless), stream_of(2, "B", bounded)]

    found = sample_profile(WorkloadRows(lambda: NOW_US), streams, [joined('"v" < 0.2')])

    assert [s.rate_per_s.value for s in found.streams] == [5_000.0, 200.0]
    assert found.filters[0].selectivity.value == pytest.approx(0.2, abs=0.01)
    assert found.families[0].join_selectivity.value == pytest.approx(1 / 40, rel=0.02)


class Counting:
    """Counts the samples that a catalog gives."""

    def __init__(self, source: CatalogRows) -> None:
        self.source = source
        self.asked: list[tuple[int, tuple[str, ...]]] = []

    def amount(self, stream: Stream) -> int:
        return self.source.amount(stream)

    def sample(self, stream: Stream, columns: Sequence[str], limit: int = SAMPLE_ROWS) -> RowSample | None:
        self.asked.append((stream.id, tuple(columns)))
        return self.source.sample(stream, columns, limit)


def test_listed_files_are_sampled_once_until_there_are_many_more(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    with Store.open(prepared(f"sqlite:///{tmp_path / 'catalog.db'}")) as store:
        streams = []
        for name in "AB":
            write_parts(rows_of(rng, 1_000, 10), tmp_path / name, 10)
            stream = store.streams.add(
                stream_of(0, name, FilesSource("parquet", str(tmp_path / name), settle_us=0))
            )
            list_files(store, stream)
            streams.append(stream)
        source, cache = Counting(CatalogRows(store)), SampleCache()

        first = sample_profile(source, streams, [joined('"v" < 0.5')], cache=cache)
        again = sample_profile(source, streams, [joined('"v" < 0.5')], cache=cache)
        assert again == first
        assert source.asked == [(1, ("k", "v")), (2, ("k", "v"))]

        queries = [joined('"v" < 0.5'), joined('"v" < 0.6', number=2)]
        more = sample_profile(source, streams, queries, cache=cache)
        assert more.filters[0] == first.filters[0]
        assert source.asked[2:] == [(1, ("v",))]

        for n in range(round(10 * GROWTH) + 1):
            pq.write_table(rows_of(rng, 100, 10), tmp_path / "A" / f"later-{n}.parquet")
        list_files(store, streams[0])
        sample_profile(source, streams, queries, cache=cache)
        assert [stream_id for stream_id, _ in source.asked[3:]] == [1]


def test_a_long_listing_is_seen_at_both_ends(tmp_path: Path) -> None:
    """Ten times the rate at the end: the mean of what both ends took."""
    with Store.open(prepared(f"sqlite:///{tmp_path / 'catalog.db'}")) as store:
        directory = tmp_path / "A"
        directory.mkdir()
        stream = store.streams.add(stream_of(0, "A", FilesSource("parquet", str(directory), settle_us=0)))
        rng = np.random.default_rng(5)
        for n in range(3 * EDGE_FILES):
            gap_us = 1_000 if n < 2 * EDGE_FILES else 100
            table = rows_of(rng, 10, 3, first_us=n * 10_000, gap_us=gap_us)
            pq.write_table(table, directory / f"{n:05d}.parquet")
        list_files(store, stream)

        sample = CatalogRows(store).sample(stream, ["k"])

    assert sample is not None
    assert sample.rate_per_s == pytest.approx(1000, rel=0.01)
    assert sample.file_s == pytest.approx(0.01, rel=0.01)


def test_posted_events_are_sampled_from_the_newest_back(tmp_path: Path) -> None:
    with Store.open(prepared(f"sqlite:///{tmp_path / 'catalog.db'}")) as store:
        stream = store.streams.add(stream_of(0, "A", HttpSource()))
        log = EventLog(tmp_path / "events.db")
        assert CatalogRows(store, log).sample(stream, ["v"]) is None
        for first in range(0, 300, 100):
            log.append(stream, [{"ts": n * 1_000, "k": n, "v": n / 300} for n in range(first, first + 100)])
        sample = CatalogRows(store, log).sample(stream, ["v"], 150)
        assert CatalogRows(store, log).amount(stream) == 300
        log.close()

    assert sample is not None
    assert sample.rate_per_s == pytest.approx(1000)
    assert sample.table.column("v").to_pylist() == [n / 300 for n in range(150, 300)]

"""Values survive the way through JSON."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.documents.codec import decode, encode, encode_short
from catalog.errors import CorruptDocument
from catalog.values.batch import BatchManifest, ResultFile
from catalog.values.control import ControlRecord, Heartbeat
from catalog.values.groups.grouping import Grouping
from catalog.values.plan import FamilyPlan, Plan, Replication
from catalog.values.query import Query
from catalog.values.stream import (
    Column,
    FilesSource,
    GeneratedColumn,
    GeneratorSource,
    HttpSource,
    Stream,
)
from tests.catalog.examples import manifest, plan
from tests.examples import examples

_numbers = st.floats(allow_nan=False)
_generated = st.builds(GeneratedColumn, low=_numbers, high=_numbers, skew=_numbers)
_sources = st.one_of(
    st.builds(FilesSource),
    st.builds(HttpSource),
    st.builds(GeneratorSource, rate_per_s=_numbers, columns=st.lists(_generated, max_size=2).map(tuple)),
)
_streams = st.builds(Stream, columns=st.lists(st.builds(Column), max_size=3).map(tuple), source=_sources)
_keys = st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.integers(4, 64), max_size=3)
_replications = st.builds(
    Replication, every=st.integers(1, 3), heavy=_keys.map(lambda keys: tuple(sorted(keys.items())))
)
# Inside queries and plans, too; an interval has a length.
st.register_type_strategy(
    Grouping, st.builds(Grouping, tumble_us=st.none() | st.integers(min_value=1, max_value=2**61))
)
# A file stays below its directory.
_paths = st.from_regex(r"[a-z0-9]{1,8}\.parquet", fullmatch=True)
st.register_type_strategy(ResultFile, st.builds(ResultFile, path=_paths))
_families = st.builds(FamilyPlan, replication=_replications)
_plans = st.builds(
    Plan,
    streams=st.lists(_streams, max_size=2).map(tuple),
    families=st.lists(_families, max_size=2).map(tuple),
)
_records = st.one_of(
    st.builds(ControlRecord, plan=_plans, heartbeat=st.none()),
    st.builds(ControlRecord, plan=st.none(), heartbeat=st.builds(Heartbeat)),
)


@settings(max_examples=examples(100, short=12))
@given(value=st.one_of(_streams, _plans, _records, st.builds(Query), st.builds(BatchManifest)))
def test_a_value_decodes_to_itself(value: Stream | Plan | ControlRecord | Query | BatchManifest) -> None:
    document = encode(value)
    assert decode(type(value), document) == value
    assert decode(type(value), document.decode()) == value
    assert encode(decode(type(value), document)) == document


@settings(max_examples=examples(50, short=8))
@given(st.builds(BatchManifest))
def test_a_short_manifest_decodes_to_itself(value: BatchManifest) -> None:
    document = encode_short(value)
    assert decode(BatchManifest, document) == value
    assert len(document) <= len(encode(value))


def test_infinite_bounds_and_nan_survive() -> None:
    column = GeneratedColumn("x", low=-math.inf, high=math.inf, skew=math.nan)
    found = decode(GeneratedColumn, encode(column))
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert math.isnan(found.skew)


def test_a_source_keeps_its_type() -> None:
    for source in (FilesSource("csv", "/x"), HttpSource(), GeneratorSource(2.0)):
        stream = Stream(1, "s", (Column("ts", "timestamp"),), "ts", 0, source)
        assert decode(Stream, encode(stream)).source == source


def test_a_document_written_before_a_field_existed_gets_its_default() -> None:
    document = encode(plan(1)).replace(b',"next_bit":[["s1s2-00c0ffee/a",1]]', b"")
    assert decode(Plan, document).next_bit == ()


def test_a_document_with_a_field_of_a_later_version_decodes() -> None:
    assert decode(Column, b'{"name":"k","type":"int","comment":"new"}') == Column("k", "int")


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b'{"name":"k"}', b'{"name":1,"type":"int"}'])
def test_what_is_no_such_value_is_corrupt(document: bytes) -> None:
    with pytest.raises(CorruptDocument, match='stored document is not a valid "Column"'):
        decode(Column, document)


def test_a_wrong_type_in_a_value_is_not_stored() -> None:
    with pytest.raises(ValueError, match="PydanticSerializationUnexpectedValue"):
        encode(Column("k", 5))  # type: ignore[arg-type]  # what the type checker would catch


def test_invariants_hold_after_decoding() -> None:
    with pytest.raises(CorruptDocument):
        decode(ControlRecord, b'{"seq":1,"at_batch":null,"plan":null,"heartbeat":null}')


def test_the_codec_pulls_no_database_into_a_worker() -> None:
    code = (
        "import sys, catalog, catalog.documents.codec, catalog.values.plan, catalog.values.batch;"
        "sys.exit(any(m.split('.')[0] in ('sqlalchemy', 'alembic') for m in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_manifest_of_a_batch_stays_small() -> None:
    assert len(encode(manifest(0, 1, {1: 5}))) < 1_500

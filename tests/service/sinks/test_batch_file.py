"""Files of batches: whole or not there, and the same bytes whenever they are written."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain, pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from catalog.values.sink import FilesSink, SinkFormat
from service.documents.streams.stream_document import StreamDocument
from service.errors import SinkFailed
from service.inputs.partitions import FileRows, FilesPartition
from service.inputs.reading.read import read_partition
from service.inputs.sources.listed.files import candidates, judged_files
from service.sinks.batch_file import ROWS_AT_A_TIME, write_batch_file
from tests.service.sinks.world import read_file

SCHEMA = pa.schema(
    [("k", pa.int64()), ("s", pa.string()), ("d", pa.decimal128(5, 2)), ("t", pa.timestamp("us"))]
)
ROWS = [(1, "a", "1.50", 5), (2, None, None, None), (3, 'x,"y"\n', "-0.01", 1_700_000_000_000_001)]


def parts(*sizes: int) -> Iterator[pa.RecordBatch]:
    start = 0
    for size in sizes:
        rows = ROWS[start : start + size]
        start += size
        columns = zip(*rows, strict=True)
        k, s, d, t = columns
        arrays = [
            pa.array(k, pa.int64()),
            pa.array(s, pa.string()),
            pa.array(d, pa.string()).cast(pa.decimal128(5, 2)),
            pa.array(t, pa.timestamp("us")),
        ]
        yield pa.record_batch(arrays, schema=SCHEMA)


@pytest.mark.parametrize("form", ["parquet", "ndjson", "csv"])
def test_a_file_is_written_again_with_the_same_bytes(tmp_path: Path, form: SinkFormat) -> None:
    sink = FilesSink("a/b", form)
    file = write_batch_file(tmp_path / "exports", sink, f"x.{form}", parts(2, 1))
    assert file == tmp_path / "exports" / "a" / "b" / f"x.{form}"
    before = file.read_bytes()
    assert write_batch_file(tmp_path / "exports", sink, f"x.{form}", parts(2, 1)) == file
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_every_format_has_the_rows_in_order(tmp_path: Path) -> None:
    files = {
        form: write_batch_file(tmp_path, FilesSink("x", form), f"x.{form}", parts(1, 2))
        for form in ("parquet", "ndjson", "csv")
    }
    rows = read_file(files["ndjson"])
    assert rows[2] == {"k": 3, "s": 'x,"y"\n', "d": "-0.01", "t": "2023-11-14T22:13:20.000001Z"}
    assert read_file(files["parquet"]) == rows
    assert pq.read_schema(files["parquet"]).remove_metadata() == SCHEMA
    text = files["csv"].read_text()
    found = list(csv.reader(io.StringIO(text, newline="")))
    assert found[0] == list(SCHEMA.names)
    assert [row[0] for row in found[1:]] == ["1", "2", "3"], "one header for all parts"
    assert found[3][1] == 'x,"y"\n'


def test_row_groups_of_parquet_do_not_depend_on_how_rows_are_read(tmp_path: Path) -> None:
    size = ROWS_AT_A_TIME["parquet"]
    rows = pa.record_batch([pa.array(range(2 * size + 3), pa.int64())], ["n"])
    sink, written = FilesSink("x"), set()
    for cuts in ((), (size,), (1, 2, 3), (size - 1, 2 * size + 1), (size, 2 * size)):
        parts = [rows.slice(a, b - a) for a, b in pairwise((0, *cuts, rows.num_rows))]
        file = write_batch_file(tmp_path, sink, "x.parquet", iter(parts))
        written.add(file.read_bytes())
        metadata = pq.read_metadata(file)
        assert [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)] == [size, size, 3]
    assert len(written) == 1


def test_a_file_that_fails_midway_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from chain(parts(2))
        raise OSError(28, "No space left on device")

    for form in ("parquet", "ndjson", "csv"):
        with pytest.raises(OSError, match="No space left"):
            write_batch_file(tmp_path, FilesSink("x", form), f"x.{form}", broken())
        assert list((tmp_path / "x").iterdir()) == []


def test_a_link_does_not_lead_out_of_the_directory_of_exports(tmp_path: Path) -> None:
    exports, outside = tmp_path / "exports", tmp_path / "outside"
    exports.mkdir()
    outside.mkdir()
    (exports / "link").symlink_to(outside)
    with pytest.raises(SinkFailed, match='path "link/x" leads out of the directory of exports'):
        write_batch_file(exports, FilesSink("link/x"), "x.parquet", parts(1))
    assert list(outside.iterdir()) == []
    # A link of the whole directory is the operator's.
    (tmp_path / "also").symlink_to(exports)
    write_batch_file(tmp_path / "also", FilesSink("y"), "x.parquet", parts(1))
    assert (exports / "y" / "x.parquet").exists()


@pytest.mark.parametrize(("form", "source"), [("parquet", "parquet"), ("ndjson", "jsonl"), ("csv", "csv")])
def test_a_stream_reads_the_files_of_a_sink_with_their_event_times(
    tmp_path: Path, form: SinkFormat, source: str
) -> None:
    schema = SCHEMA.set(3, pa.field("_event_time", pa.timestamp("us")))
    given = pa.Table.from_batches(list(parts(1, 2))).rename_columns(schema.names)
    given = given.filter(pc.is_valid(given["_event_time"]))
    write_batch_file(tmp_path, FilesSink("x", form), f"x.{form}", iter(given.to_batches()))
    document = {
        "name": "X",
        "columns": {"k": "bigint", "s": "string", "d": "decimal(5,2)", "_event_time": "timestamp"},
        "event_time": "_event_time",
        "source": {"type": "files", "format": source, "path": str(tmp_path / "x"), "settle": 0},
    }
    stream = StreamDocument.model_validate(document).to_stream()
    (listed,) = judged_files(stream, sorted(candidates(stream.source.path)))
    assert (listed.rows, listed.reason) == (2, None)
    rows = FileRows(0, listed.path, listed.size, listed.mtime_ns, 0, listed.rows)
    table = read_partition(stream, FilesPartition(1, 0, None, 2, (rows,)))
    assert table.drop_columns("_pos").to_pylist() == given.to_pylist()

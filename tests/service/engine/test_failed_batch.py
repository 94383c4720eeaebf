"""A file that changed after it was listed: its stream's ``on_error`` applies, and the others go on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from catalog.errors import SluiceError
from catalog.store.store import Store
from catalog.values.stream import OnError, Stream
from service.engine.failed_batch import FailedBatch
from service.errors import FileRefused
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.inputs.sources.listed.files import list_files
from tests.catalog.examples import manifest
from tests.epochs import begin_epoch
from tests.service.inputs.streams import files_stream, read_all
from tests.service.spark_logs import SparkLog, write_begun

FILES = {"0.csv": "ts,k,v\n1,0,0\n", "1.csv": "ts,k,v\n2,1,1\n", "2.csv": "ts,k,v\n3,2,2\n"}


def listed(store: Store, folder: Path, on_error: OnError) -> Stream:
    draft = dataclasses.replace(files_stream(folder, "csv"), on_error=on_error, time_unit="us")
    stream = store.streams.add(draft)
    for name, text in FILES.items():
        (folder / name).write_text(text)
    assert list_files(store, stream) == len(FILES)
    return stream


def trace_of_reading(store: Store, stream: Stream) -> tuple[str, str]:
    with pytest.raises(SluiceError) as caught:
        read_all(store, stream)
    return str(caught.value), caught.value.primary


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("on_error", ["set-aside", "skip-rows", "stop"])
def test_changed_files_are_set_aside_together_or_stop_their_stream_alone(
    store: Store, folder: Path, on_error: OnError, bounded: bool
) -> None:
    stream = listed(store, folder, on_error)
    log = SparkLog(folder / "checkpoint")
    write_begun(log, 0, {str(stream.id): 3, "batch": 1, "control": 0})
    (folder / "1.csv").write_text(FILES["1.csv"] + "4,4,4\n")
    (folder / "2.csv").unlink()
    trace, reason = trace_of_reading(store, stream)
    batch = FailedBatch(store, log, bounded, None)
    goes_on = batch.decided(trace, reason)

    assert goes_on == (on_error != "stop" or not bounded)
    one, two = store.source_files.set_aside(stream.id)
    assert one.reason == reason
    assert reason.endswith('1.csv" of stream "S" changed after it was listed: it had 13 bytes and has 19')
    assert two.reason == "it changed after it was listed: it is gone"
    if on_error != "stop":
        assert log.begun() == (0,), "the batch is repeated, without the files"
        assert read_all(store, stream).column("k").to_pylist() == [0]
        return
    inputs = Inputs(store, None, bounded=bounded)
    if bounded:
        with pytest.raises(FileRefused, match="changed after it was listed"):
            batch.refuse_file(trace)
        with pytest.raises(FileRefused):
            inputs.pending(Lane(stream), 0, 9)
        return
    assert log.begun() == (), "the batch begins anew"
    assert [piece.position for piece in inputs.pending(Lane(stream), 0, 9)] == [0]
    assert inputs.pending(Lane(stream), 1, 9) == ()


def test_a_committed_batch_whose_input_is_lost_is_repeated_without_it(store: Store, folder: Path) -> None:
    stream = listed(store, folder, "stop")
    log, end = SparkLog(folder / "checkpoint"), {str(stream.id): 3, "batch": 1, "control": 0}
    write_begun(log, 0, end)
    first = dataclasses.replace(
        manifest(0, begin_epoch(store)), input_end=tuple(end.items()), digest="of all rows"
    )
    store.batches.commit(first)
    (folder / "1.csv").unlink()
    assert FailedBatch(store, log, False, None).decided(*trace_of_reading(store, stream))
    assert read_all(store, stream).column("k").to_pylist() == [0, 2]
    assert not store.batches.commit(dataclasses.replace(first, digest="of fewer rows"))

"""A file that changed after it was read is named, and then ignored, read again, or the end of its stream."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.store.store import Store
from catalog.values.stream import FilesSource, OnChange
from service.inputs.inputs import Inputs
from service.inputs.partitions import Lane
from service.inputs.sources.listed.changed_files import ChangedFiles
from service.inputs.sources.listed.files import list_files
from tests.service.inputs.streams import files_stream, read_all

CHANGED = "it changed after it was read: it had 15 bytes and has 30; a retry reads the whole file again"
ROW = '{"ts":%d,"k":%d}\n'


@pytest.mark.parametrize("on_change", ["ignore", "reread", "stop"])
def test_a_known_name_with_new_content(store: Store, folder: Path, on_change: OnChange) -> None:
    stream = store.streams.add(files_stream(folder, "jsonl", on_change=on_change))
    for name in (1, 2, 3):
        (folder / f"{name}").write_text(ROW % (name, name))
    list_files(store, stream)
    changed = ChangedFiles(store)

    def look(read_up_to: int) -> int:
        assert isinstance(stream.source, FilesSource)
        return changed.look(stream, stream.source, read_up_to) + list_files(store, stream)

    assert look(2) == 0
    (folder / "1").write_text(ROW % (1, 1) + ROW % (4, 4))
    (folder / "2").unlink()  # rotated away: it was read
    (folder / "3").write_text(ROW % (3, 33))  # the batch that reads it finds the change
    (folder / "2.1").write_text(ROW % (2, 2))
    assert look(2) == 2
    assert look(2) == 0, "it is told once"

    pieces = [piece.position for piece in Inputs(store, None).pending(Lane(stream), 0, 9)]
    assert pieces == ([0, 1, 2] if on_change == "stop" else [0, 1, 2, 3, 4])
    aside = [(f.verdict, f.path, f.reason) for f in store.source_files.set_aside(stream.id)]
    verdicts = {"ignore": ["set-aside"], "reread": [], "stop": ["stops"]}
    assert aside == [(verdict, f"{folder}/1", CHANGED) for verdict in verdicts[on_change]]

    (folder / "1").write_text(ROW % (5, 5))
    (folder / "3").unlink()
    assert look(9) == (on_change == "reread")
    store.source_files.retry(stream.id)
    assert look(9) == (on_change != "reread")
    newest = [f for f in store.source_files.page(stream.id) if f.path == f"{folder}/1"][-1]
    assert (newest.verdict, newest.rows, newest.t_min_us) == ("ok", 1, 5)


def test_a_file_that_was_set_aside_is_read_once_it_has_changed(store: Store, folder: Path) -> None:
    source = FilesSource("jsonl", str(folder), settle_us=0, on_change="reread")
    stream = store.streams.add(files_stream(folder, "jsonl", on_change="reread"))
    (folder / "1").write_text("no JSON")
    list_files(store, stream)
    for text, listed in (("still no JSON", 0), (ROW % (1, 1), 1)):
        (folder / "1").write_text(text)
        ChangedFiles(store).look(stream, source, 1)
        assert list_files(store, stream) == listed
    assert read_all(store, stream).column("k").to_pylist() == [1]

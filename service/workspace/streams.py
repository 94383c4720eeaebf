"""Registering a stream: its files are judged first, then all of it is in the catalog at once.

Judging reads the footer of every file that is there, which can take seconds and must hold nobody up. What is
found, where reading begins and the stream itself are one transaction, so that a crash leaves a whole stream
or none, and whoever keeps an answer keeps it with the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from catalog.clock import wall_clock_us
from catalog.store.store import Store
from catalog.values.source_file import ListedInput
from catalog.values.stream import FilesSource, Stream
from service.inputs.inputs import Inputs
from service.inputs.sources.files import candidates, judged_files
from service.inputs.validate import resolve_source, validate_source


def register_stream(
    store: Store,
    inputs: Inputs,
    draft: Stream,
    *,
    settle_s: float,
    keep: Callable[[Stream], None] | None = None,
) -> Stream:
    """Register a stream.

    Args:
        store: The catalog.
        inputs: Tell where the input of a stream ends now.
        draft: The stream with id 0.
        settle_s: A file that looks broken is left for a later listing until it has not changed for so long.
        keep: Called in the transaction with the stream, to keep something with it.

    Returns:
        The stream with its id.

    Raises:
        NameTaken: A stream of that name exists.
        InvalidInput: Its source cannot be read as it says.
    """
    draft = resolve_source(draft, base=Path.cwd(), now_us=wall_clock_us())
    validate_source(draft)
    found = _files_of(draft, settle_s)
    with store.transaction():
        stream = store.streams.add(draft)
        store.source_files.append(stream.id, found)
        if stream.start == "latest":
            stream = store.streams.set_initial_position(stream.name, inputs.end(stream))
        if keep is not None:
            keep(stream)
    return stream


def _files_of(draft: Stream, settle_s: float) -> tuple[ListedInput, ...]:
    if not isinstance(draft.source, FilesSource):
        return ()
    return tuple(judged_files(draft, sorted(set(candidates(draft.source.path))), settle_s=settle_s))

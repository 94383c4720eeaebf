"""Decisions about a batch that has failed, recorded in the catalog before the batch begins again.

    a file is bad or has changed    the file is set aside, or its stream stops before it
    an expression cannot be used    the queries that contain it are paused

A batch *begins anew* if its entry is removed from Spark's offset log: its input is admitted again, under the
newest plan. The batch was not committed, so nothing of it is visible.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from catalog.store.store import Store
from catalog.values.source_file import SourceFile, Verdict
from catalog.values.stream import FilesSource, Stream
from operators.errors import find_failed_expression
from service.checkpoint.spark_log import SparkLog
from service.errors import FileRefused, find_corrupt_input
from service.inputs.sources.listed.files import log_left_out
from service.inputs.sources.listed.opened_file import change_of

log = logging.getLogger(__name__)

_PAGE = 1000


@dataclass(frozen=True, slots=True)
class FailedBatch:
    """The batch after the last committed one, or the last one while Spark repeats it.

    Attributes:
        store: Catalog.
        log: Spark's logs.
        bounded: Whether the job ends once all available input is processed.
        pause_failing: As in ``service.engine.engine.Engine``.
    """

    store: Store
    log: SparkLog
    bounded: bool
    pause_failing: Callable[[str, str], tuple[str, ...]] | None

    def decided(self, trace: str, reason: str) -> bool:
        """Decide about a failure; return whether the batch can begin again."""
        return self._without_files(trace, reason) or self._without_queries(trace, reason)

    def _last(self) -> int:
        last = self.store.batches.last()
        return -1 if last is None else last

    def _without_files(self, trace: str, reason: str) -> bool:
        """Set the bad file of the batch aside, and files of the batch that changed after they were listed."""
        last = self._last()
        begun = self.log.input_range(last + 1)
        found = find_corrupt_input(trace)
        if found is None:
            if FileRefused.__name__ not in trace or self.bounded or begun is None:
                return False
            self.log.forget_after(last)
            return True
        stream = self.store.streams.by_id(found[0])
        (file,) = self.store.source_files.page(stream.id, found[1], 1)
        bad = [(stream, file, reason), *self._changed(begun or self.log.input_range(last), but=file)]
        # Results of a committed batch are kept. Only its state is made again, without the rows of the files.
        stops = begun is not None and any(stream.on_error == "stop" for stream, *_ in bad)
        with self.store.transaction():
            for stream, file, why in bad:
                verdict: Verdict = "stops" if begun is not None and stream.on_error == "stop" else "set-aside"
                self.store.source_files.set_verdict(stream.id, file.position, verdict, why)
                if not self.bounded:  # a bounded run reports its files at its end, on the terminal
                    log_left_out(stream, replace(file, verdict=verdict, reason=why))
            if begun is None:
                self.store.batches.accept_repetition(last)
        if stops and not self.bounded:
            self.log.forget_after(last)
        return not (stops and self.bounded)

    def _changed(
        self, ends: tuple[dict[str, int], dict[str, int]] | None, *, but: SourceFile
    ) -> Iterator[tuple[Stream, SourceFile, str]]:
        """Yield the files of a batch that changed after they were listed, with the reasons."""
        if ends is None:
            return
        for stream in self.store.streams.all():
            if not isinstance(stream.source, FilesSource):
                continue
            position, end = (offset.get(str(stream.id), stream.initial_position) for offset in ends)
            while position < end:
                files = self.store.source_files.page(stream.id, position, min(_PAGE, end - position))
                if not files:
                    break
                for file in files:
                    change = change_of(file.path, file.size, file.mtime_ns)
                    if file.verdict == "ok" and file != but and change is not None:
                        yield stream, file, f"it changed after it was listed: {change}"
                position = files[-1].position + 1

    def refuse_file(self, trace: str) -> None:
        """Raise an error if a bounded run has reached a bad file of a stream with ``on_error: stop``.

        Raises:
            FileRefused: A retry would fail in the same way.
        """
        if FileRefused.__name__ not in trace and find_corrupt_input(trace) is None:
            return
        for stream in self.store.streams.all():
            for file in self.store.source_files.set_aside(stream.id):
                if file.verdict == "stops":
                    raise FileRefused(stream.name, file.path, file.reason or "")

    def _without_queries(self, trace: str, reason: str) -> bool:
        """Pause the queries whose expression cannot be evaluated, so that the batch begins anew.

        The queries are paused before the entry is removed. If the engine dies in between, the next engine
        finds the queries paused.
        """
        digest = find_failed_expression(trace)
        if digest is None or self.pause_failing is None:
            return False
        paused = self.pause_failing(digest, reason)
        last = self._last()
        begun = self.log.input_end(last + 1)
        if not paused and (begun is None or begun["control"] >= self.store.control_log.head()):
            return False
        log.error("queries paused: %s", reason, extra={"queries": paused, "batch": last + 1})
        self.log.forget_after(last)
        return True

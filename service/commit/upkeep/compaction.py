"""Compaction while the job runs: result files of neighbouring old batches are merged into larger files.

    manifests   . . . . . . . . . . . .   newest batches, each with a file per bucket and family
    level 1     [      64 batches     ]   written as soon as 64 batches are old enough
    level 2     [ 16 files of level 1 ]   and so on, up to ``MOST_BYTES`` and ``MOST_BATCHES``

Each row is therefore rewritten once per level, and each family has at most about 16 small files per level. A
file of at least ``LARGE_BYTES`` is not merged. A damaged file is not merged either, because its checksum must
still reveal the damage.

New files are written and synced before one transaction names them
(``catalog.store.results.compaction``). The files that they replace are unlinked a minute later. After a
crash, new files that no transaction has named are removed at the next start.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from catalog.errors import FencedOut, SluiceError
from catalog.store.results.compaction import OldBatches
from catalog.store.results.result_files import MOST_BATCHES
from catalog.store.results.retention import KEPT_BATCHES
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from catalog.values.batch import MergedFile, ResultFile
from operators.storage.folder import Folder, prepare, publish, remove
from service.commit.failpoints import reached
from service.commit.sweep import sweep_merged
from service.commit.sync import sync_file_systems
from service.commit.upkeep.unlinking import UNLINK_AFTER_S, Unlinking
from service.errors import CorruptResults
from service.faults import Faults
from service.results.files.merge import merge_files
from service.results.files.result_check import check_files

log = logging.getLogger(__name__)

#: Length in bytes from which a file is not merged, because reading it separately costs hardly more.
LARGE_BYTES = 32 << 20
#: Maximum total length of the files that are merged into one, in bytes.
MOST_BYTES = 128 << 20
#: Number of batches whose files move from their manifests to the table of merged files in one transaction.
#: The transaction takes 5 ms of CPU.
BATCHES_AT_A_TIME = 64
#: Number of files of one level that are merged into one file of the next level.
FILES_AT_A_TIME = 16
#: A merged file is kept until its newest batch is older than the retention. The file may therefore span at
#: most the retention divided by this number.
_PART_OF_RETENTION = 24
#: Seconds between two searches for files to merge, while there are none. The 64 batches of a merge take ten
#: seconds to run, at 150 ms each.
INTERVAL_S = 2.0
#: Pause after a merge, as a multiple of the merge's duration, because the job needs the processor, too.
_RESTS = 3.0
#: Pause after a failure such as a full disk, in seconds. The pause is long, because each failure may leave a
#: file that only the next start removes.
_AFTER_FAILURE_S = 60.0


@dataclass(slots=True)
class Compactor:
    """A thread that merges the result files and late-row files of a running service.

    Attributes:
        store: Catalog.
        results_dir: Folder of result files.
        late_dir: Folder of late rows.
        retention_us: How long results are kept, wall clock µs; None keeps them forever.
        engine_lock: Path of the engine's lock file, for failpoints.
        epoch: Epoch at which the engine took the lease; it is part of the names of merged files.
        kept_batches: Number of newest batches whose files are not merged, because the batches may be replayed
            and statistics read their manifests.
        batches_at_a_time: Number of batches whose files move from their manifests to the table of merged
            files in one transaction.
        files_at_a_time: Number of files of one level that are merged into one file of the next level.
        interval_s: Seconds between two searches for files to merge, while there are none.
        unlink_after_s: Seconds after a merge until the files that were merged are unlinked.
        now_us: Wall clock, µs UTC.
        faults: Records unexpected errors.
    """

    store: Store
    results_dir: Folder
    late_dir: Folder
    retention_us: int | None
    engine_lock: str
    epoch: int
    kept_batches: int = KEPT_BATCHES
    batches_at_a_time: int = BATCHES_AT_A_TIME
    files_at_a_time: int = FILES_AT_A_TIME
    interval_s: float = INTERVAL_S
    unlink_after_s: float = UNLINK_AFTER_S
    now_us: Callable[[], int] = wall_clock_us
    faults: Faults = field(default_factory=Faults)
    _unlinking: Unlinking = field(default_factory=Unlinking, init=False)
    _unmergeable: set[Path] = field(default_factory=set, init=False)
    _levels_seen: bool = field(default=False, init=False)
    _stop: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def start(self) -> None:
        """Remove merged files that a crash left, and start the thread, the only one that merges."""
        sweep_merged(self.store, self.results_dir, self.late_dir, self.epoch)
        self._thread = threading.Thread(target=self._run, name="compactor", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread once it has finished the current file."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def run_once(self) -> bool:
        """Merge files of old batches or else of one level of merged files; return whether there were any."""
        self._unlinking.run_once(self.now_us(), self.unlink_after_s)
        old = self.store.compaction.old_batches(kept=self.kept_batches, count=self.batches_at_a_time)
        if old is not None:
            self._levels_seen = False
            return self._merge_batches(old)
        if self._levels_seen:
            return False
        group = next(self._groups_of_levels(), None)
        self._levels_seen = group is None
        return group is not None and self._merge_level(group)

    def _run(self) -> None:
        rest_s = self.interval_s
        while not self._stop.wait(rest_s):
            rest_s = self.faults.attempt("compactor", self._look) or self.interval_s

    def _look(self) -> float:
        """Merge the next files that are ready, and return how many seconds to pause."""
        began_s = time.monotonic()
        try:
            more = self.run_once()
        except (SluiceError, OSError) as error:
            # No result is lost, because the catalog names either the old files or the new file.
            log.warning("merging result files failed: %s", error)
            return _AFTER_FAILURE_S
        return _RESTS * (time.monotonic() - began_s) if more else self.interval_s

    def _merge_batches(self, old: OldBatches) -> bool:
        """Merge files that the manifests of old batches name; return whether the catalog changed."""
        files = [
            MergedFile(file, late, m.batch, m.batch, m.committed_at_us, m.committed_at_us, 0)
            for m in old.manifests
            for late, some in ((False, m.files), (True, m.late_files))
            for file in some
        ]
        made: list[MergedFile] = []
        merged: list[MergedFile] = []
        try:
            for group in self._groups(files, whole=True):
                found = self._merged(group)
                if found is not None:
                    made.append(found)
                    merged += group
                if self._stop.is_set():
                    self._forget(made)
                    return False
            self._keep(made)
        except BaseException:
            self._forget(made)
            raise
        gone = {(each.late, each.file.path) for each in merged}
        stay = [replace(f, level=1) for f in files if (f.late, f.file.path) not in gone]
        reached("before-compaction", old.manifests[0].batch, self.engine_lock)
        if not self._named(made, partial(self.store.compaction.name, old, [*made, *stay])):
            return False
        reached("after-compaction", old.manifests[0].batch, self.engine_lock)
        self._unlink_later(merged)
        return True

    def _merge_level(self, group: Sequence[MergedFile]) -> bool:
        """Merge files of one level."""
        made = self._merged(group)
        if made is None:
            return True  # the files are in _unmergeable now, so the next search skips them
        try:
            self._keep([made])
        except BaseException:
            self._forget([made])
            raise
        reached("before-compaction", made.first, self.engine_lock)
        if not self._named([made], partial(self.store.compaction.replace, group, made)):
            return False
        reached("after-compaction", made.first, self.engine_lock)
        self._unlink_later(group)
        return True

    def _groups_of_levels(self) -> Iterator[list[MergedFile]]:
        """Yield the groups of files from the table of merged files that can be merged further."""
        return self._groups(self.store.result_files.merged(), whole=False)

    def _groups(self, files: Iterable[MergedFile], *, whole: bool) -> Iterator[list[MergedFile]]:
        """Yield groups of small files of one kind and level, in the order of their batches.

        Args:
            files: Files to group.
            whole: Whether groups may have any size; otherwise each group has ``files_at_a_time`` files.
        """
        small = [f for f in files if self._path(f) not in self._unmergeable and self._bytes(f) < LARGE_BYTES]
        for _, alike in groupby(sorted(small, key=_kind_and_time), key=_kind):
            group: list[MergedFile] = []
            for file in alike:
                full = not whole and len(group) == self.files_at_a_time
                if group and (full or not self._fit([*group, file])):
                    if len(group) > 1:
                        yield group
                    group = []
                group.append(file)
            if len(group) > 1 and (whole or len(group) == self.files_at_a_time):
                yield group

    def _fit(self, group: Sequence[MergedFile]) -> bool:
        """Return whether a group of files is within the limits on bytes, batches and time of one file."""
        span_us = max(f.last_at_us for f in group) - min(f.first_at_us for f in group)
        if self.retention_us is not None and span_us * _PART_OF_RETENTION > self.retention_us:
            return False
        if max(f.last for f in group) - min(f.first for f in group) >= MOST_BATCHES:
            return False
        return sum(map(self._bytes, group)) <= MOST_BYTES

    def _merged(self, group: Sequence[MergedFile]) -> MergedFile | None:
        """Merge files into one; if they cannot be merged, log this once, leave them out and return None."""
        for each in group:
            try:
                check_files(self._folder(each), [each.file])
            except CorruptResults as error:
                self._unmergeable.add(self._path(each))
                log.error("file is not merged: %s", error)
        if any(self._path(each) in self._unmergeable for each in group):
            return None
        first, last = min(f.first for f in group), max(f.last for f in group)
        of = "late" if group[0].late else group[0].file.family
        name = f"m{first:09d}-{last:09d}-{of}-e{self.epoch}-{uuid.uuid4().hex[:12]}.parquet"
        prepare(self._folder(group[0]))
        target = self._folder(group[0]) / name
        try:
            rows, *facts = merge_files([self._path(each) for each in group], target)
            if rows != (named := sum(each.file.rows for each in group)):
                raise pa.ArrowInvalid(f"they have {rows} rows, their batches wrote {named}")
        except pa.ArrowException as error:
            target.unlink(missing_ok=True)
            self._unmergeable.update(map(self._path, group))
            log.warning("files of batches %d to %d are not merged: %s", first, last, error)
            return None
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return MergedFile(
            ResultFile(name, group[0].file.family, rows, *facts),
            group[0].late,
            first,
            last,
            min(f.first_at_us for f in group),
            max(f.last_at_us for f in group),
            group[0].level + 1,
        )

    def _named(self, made: Sequence[MergedFile], name: Callable[[], bool]) -> bool:
        """Record new files in the catalog, or unlink them if it refuses; return whether it accepted them.

        After an error other than ``FencedOut`` it is unknown whether the catalog names the new files. So the
        files are kept, and the next start removes them if the catalog does not name them.
        """
        try:
            named = name()
        except FencedOut:
            self._forget(made)
            raise
        if not named:
            self._forget(made)
        return named

    def _keep(self, made: Sequence[MergedFile]) -> None:
        """Make new files durable and available to all machines."""
        for folder, names in self._by_folder(made):
            publish(folder, names)
        if made:
            sync_file_systems((self.results_dir, self.late_dir))

    def _forget(self, made: Iterable[MergedFile]) -> None:
        """Remove new files that the catalog does not name."""
        for folder, names in self._by_folder(made):
            remove(folder, names)

    def _unlink_later(self, merged: Iterable[MergedFile]) -> None:
        for folder, names in self._by_folder(merged):
            self._unlinking.add(self.now_us(), folder, names)

    def _by_folder(self, files: Iterable[MergedFile]) -> Iterator[tuple[Folder, list[str]]]:
        files = list(files)
        yield self.results_dir, [each.file.path for each in files if not each.late]
        yield self.late_dir, [each.file.path for each in files if each.late]

    def _folder(self, file: MergedFile) -> Folder:
        return self.late_dir if file.late else self.results_dir

    def _path(self, file: MergedFile) -> Path:
        return self._folder(file) / file.file.path

    def _bytes(self, file: MergedFile) -> int:
        """Return a file's length, which is read from the disk if an older version did not record it."""
        if file.file.bytes is not None:
            return file.file.bytes
        path = self._path(file)
        return path.stat().st_size if path.exists() else 0


def _kind(file: MergedFile) -> tuple[bool, str, int]:
    return file.late, file.file.family, file.level


def _kind_and_time(file: MergedFile) -> tuple[bool, str, int, int, int, str]:
    return *_kind(file), file.first, file.last, file.file.path

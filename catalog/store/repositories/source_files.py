"""Listed files of streams: each file is stored here, with its verdict, before any offset names it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, exists, func, insert, select, update

from catalog.errors import InputNotFound
from catalog.store.database import tables
from catalog.store.database.repository import Repository
from catalog.values.source_file import LeftOut, SourceFile, Verdict

_i = tables.inputs.c
_COLUMNS = (
    _i.position,
    _i.path,
    _i.size,
    _i.mtime_ns,
    _i.rows,
    _i.t_min_us,
    _i.t_max_us,
    _i.verdict,
    _i.reason,
    _i.skipped,
)
_FROM = (
    select(*_COLUMNS)
    .where(_i.stream_id == bindparam("stream_id"), _i.position >= bindparam("from_position"))
    .order_by(_i.position)
    .limit(bindparam("limit"))
)
_COUNT = select(func.coalesce(func.max(_i.position) + 1, 0)).where(_i.stream_id == bindparam("stream_id"))
#: Files that are read, in their current listing.
_CURRENT = _FROM.where(_i.verdict == "ok", _i.replaced == 0, _i.position < bindparam("before"))
_PATHS = select(_i.path).where(_i.stream_id == bindparam("stream_id"))
_REMOVED = select(tables.streams.c.id).where(
    tables.streams.c.removed_at_us.is_not(None), exists().where(_i.stream_id == tables.streams.c.id)
)
#: Files that were set aside or have skipped rows. If a path was listed several times, only its current
#: listing is selected.
_LEFT_OUT = (
    select(*_COLUMNS)
    .where(_i.stream_id == bindparam("stream_id"), tables.LEFT_OUT, _i.replaced == 0)
    .order_by(_i.position)
)
_SET_ASIDE = _LEFT_OUT.where(_i.verdict != "ok")
_TO_RETRY = _SET_ASIDE.where(_i.retry)
_LEFT_OUT_COUNTS = (
    select(
        _i.stream_id,
        func.count().filter(_i.verdict != "ok"),
        func.coalesce(func.sum(_i.skipped).filter(_i.verdict == "ok"), 0),
    )
    .where(tables.LEFT_OUT, _i.replaced == 0)
    .group_by(_i.stream_id)
)


def _file(row: Sequence[Any]) -> SourceFile:
    return SourceFile(*row)


class SourceFileRepository(Repository):
    """Listed files, numbered per stream from 0 in the order in which they were listed.

    A number is missing only if its file was deleted by ``forget``, which never deletes the newest file.
    """

    def append(self, stream_id: int, found: Sequence[SourceFile]) -> tuple[SourceFile, ...]:
        """List files of a stream.

        Args:
            stream_id: The stream.
            found: The files in reading order. This method ignores their positions and assigns new ones.

        Returns:
            The files with their positions.

        Raises:
            InvariantBroken: A path is listed already, or the stream does not exist.
        """
        if not found:
            return ()
        with self._database.write() as connection:
            first = connection.execute(_COUNT, {"stream_id": stream_id}).scalar_one()
            listed = tuple(dataclasses.replace(f, position=first + n) for n, f in enumerate(found))
            now_us = self._now_us()
            connection.execute(
                insert(tables.inputs),
                [{"stream_id": stream_id, "listed_at_us": now_us, **dataclasses.asdict(f)} for f in listed],
            )
        return listed

    def page(self, stream_id: int, from_position: int = 0, limit: int = 1000) -> tuple[SourceFile, ...]:
        """Return listed files in order, including the files that were set aside.

        Args:
            stream_id: The stream.
            from_position: First position to return.
            limit: Most files that are returned.

        Returns:
            The files.
        """
        wanted = {"stream_id": stream_id, "from_position": from_position, "limit": limit}
        with self._database.read() as connection:
            return tuple(_file(row) for row in connection.execute(_FROM, wanted))

    def current(self, stream_id: int, from_position: int, before: int, limit: int) -> tuple[SourceFile, ...]:
        """Return files that are read, in order, without those that are listed again at a later position.

        Args:
            stream_id: The stream.
            from_position: First position to return.
            before: Position after the last one to return.
            limit: Most files that are returned.
        """
        wanted = {"stream_id": stream_id, "from_position": from_position, "before": before, "limit": limit}
        with self._database.read() as connection:
            return tuple(_file(row) for row in connection.execute(_CURRENT, wanted))

    def set_aside(self, stream_id: int) -> tuple[SourceFile, ...]:
        """Return the files of a stream that were set aside, in order.

        Args:
            stream_id: The stream.

        Returns:
            The files, each with the reason.
        """
        with self._database.read() as connection:
            return tuple(_file(row) for row in connection.execute(_SET_ASIDE, {"stream_id": stream_id}))

    def with_skipped_rows(self, stream_id: int) -> tuple[SourceFile, ...]:
        """Return the files of a stream of which some rows were skipped, in order."""
        with self._database.read() as connection:
            found = connection.execute(_LEFT_OUT.where(_i.verdict == "ok"), {"stream_id": stream_id})
            return tuple(_file(row) for row in found)

    def left_out(self) -> tuple[LeftOut, ...]:
        """Return the numbers of files set aside and of skipped rows per stream, for streams that have any."""
        with self._database.read() as connection:
            return tuple(
                LeftOut(stream_id, files, int(rows))
                for stream_id, files, rows in connection.execute(_LEFT_OUT_COUNTS)
            )

    def retry(self, stream_id: int, some: Collection[SourceFile] | None = None) -> tuple[SourceFile, ...]:
        """Mark set-aside files of a stream for a new inspection, all or some, and return all of them."""
        marked = update(tables.inputs).where(
            _i.stream_id == stream_id, tables.LEFT_OUT, _i.replaced == 0, _i.verdict != "ok"
        )
        if some is not None:
            marked = marked.where(_i.position.in_([file.position for file in some]))
        with self._database.write() as connection:
            connection.execute(marked.values(retry=True))
            return tuple(_file(row) for row in connection.execute(_SET_ASIDE, {"stream_id": stream_id}))

    def to_retry(self, stream_id: int) -> tuple[SourceFile, ...]:
        """Return the files of a stream that are marked to be inspected again."""
        with self._database.read() as connection:
            return tuple(_file(row) for row in connection.execute(_TO_RETRY, {"stream_id": stream_id}))

    def judged_again(self, stream_id: int, former: SourceFile, found: SourceFile) -> None:
        """Record the result of the repeated inspection of a marked file.

        A file that was set aside and is now readable gets the next position, because a batch may have passed
        its old position. At the old position the file stays set aside, so that repeated batches read the same
        rows. A file that stopped the job keeps its position, because no batch has passed it.

        Args:
            stream_id: The stream.
            former: The file as it is stored.
            found: The file as it was inspected now.

        Raises:
            InputNotFound: No file at that position is marked to be inspected again.
        """
        if found.verdict == "ok" and former.verdict == "set-aside":
            self.list_again(stream_id, former, found)
            return
        facts = dataclasses.asdict(found)
        del facts["position"]
        position = former.position
        with self._database.write() as connection:
            changed = connection.execute(
                update(tables.inputs)
                .where(_i.stream_id == stream_id, _i.position == position, _i.retry)
                .values(retry=False, **facts)
            )
            if changed.rowcount != 1:
                raise InputNotFound(f"input {position} of stream {stream_id} is not marked for a retry")

    def list_again(self, stream_id: int, former: SourceFile, found: SourceFile) -> None:
        """List a file at the next position; its former listing stays, for batches that are repeated.

        Args:
            stream_id: The stream.
            former: The file as it is listed.
            found: The file as it is now.

        Raises:
            InputNotFound: The former listing is not the current one.
        """
        position = former.position
        with self._database.write() as connection:
            changed = connection.execute(
                update(tables.inputs)
                .where(_i.stream_id == stream_id, _i.position == position, _i.replaced == 0)
                .values(retry=False, replaced=position + 1)
            )
            if changed.rowcount != 1:
                raise InputNotFound(f"input {position} of stream {stream_id} is not listed")
            self.append(stream_id, [found])

    def count(self, stream_id: int) -> int:
        """Return the position that a stream's next file will get, which is the number of files ever listed.

        Args:
            stream_id: The stream.

        Returns:
            The number.
        """
        with self._database.read() as connection:
            return int(connection.execute(_COUNT, {"stream_id": stream_id}).scalar_one())

    def paths(self, stream_id: int) -> set[str]:
        """Return the paths of a stream's listed files.

        Args:
            stream_id: The stream.

        Returns:
            The paths.
        """
        with self._database.read() as connection:
            return set(connection.scalars(_PATHS, {"stream_id": stream_id}))

    def listed(self, stream_id: int, paths: Collection[str]) -> set[str]:
        """Return the given paths that are listed for a stream.

        Args:
            stream_id: The stream.
            paths: At most a thousand paths.
        """
        with self._database.read() as connection:
            return set(connection.scalars(_PATHS.where(_i.path.in_(sorted(paths))), {"stream_id": stream_id}))

    def forget(self, stream_id: int, before: int, paths: Collection[str]) -> int:
        """Delete listed files from the catalog, but not the newest one, from which positions continue.

        Args:
            stream_id: The stream.
            before: Position; the file at this position and all later files stay, whatever their paths.
            paths: Paths of the files to delete.

        Returns:
            Number of deleted files.
        """
        before = min(before, self.count(stream_id) - 1)
        wanted, forgotten = sorted(paths), 0
        for start in range(0, len(wanted), 1000):
            some = _i.path.in_(wanted[start : start + 1000])
            old = delete(tables.inputs).where(_i.stream_id == stream_id, _i.position < before, some)
            with self._database.write() as connection:
                forgotten += connection.execute(old).rowcount
        return forgotten

    def forget_all(self, stream_id: int) -> int:
        """Delete all listed files of a removed stream from the catalog; return their number."""
        with self._database.write() as connection:
            return connection.execute(delete(tables.inputs).where(_i.stream_id == stream_id)).rowcount

    def removed_stream_ids(self) -> tuple[int, ...]:
        """Return the ids of the removed streams that have listed files."""
        with self._database.read() as connection:
            return tuple(connection.scalars(_REMOVED))

    def set_verdict(self, stream_id: int, position: int, verdict: Verdict, reason: str | None) -> None:
        """Change the verdict on a listed file.

        Args:
            stream_id: The stream.
            position: Position of the file.
            verdict: The new verdict.
            reason: Reason for the verdict, for people; None if there is none.

        Raises:
            InputNotFound: No file is listed at that position.
        """
        with self._database.write() as connection:
            changed = connection.execute(
                update(tables.inputs)
                .where(_i.stream_id == stream_id, _i.position == position)
                .values(verdict=verdict, reason=reason)
            )
            if changed.rowcount != 1:
                raise InputNotFound(f"input {position} of stream {stream_id} does not exist")

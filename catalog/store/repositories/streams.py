"""Streams in the catalog, each registered under a unique name; their ids are never reused.

A removed stream leaves a tombstone, which is dropped once no kept record names the stream
(``catalog.store.pruning``).
"""

from __future__ import annotations

import dataclasses
from functools import lru_cache

from sqlalchemy import bindparam, insert, or_, select, update

from catalog.documents.codec import decode, encode
from catalog.errors import NameTaken, StreamInUse, StreamNotFound
from catalog.steps import stream_sides
from catalog.store.database import tables
from catalog.store.database.repository import Repository, next_id
from catalog.store.repositories.queries import PAUSED
from catalog.values.query import Query
from catalog.values.stream import Stream
from catalog.wording.wording import did_you_mean

_s = tables.streams.c
_q = tables.queries.c
_LIVE = select(_s.document).where(_s.removed_at_us.is_(None)).order_by(_s.id)
_LIVE_BY_NAME = _LIVE.where(_s.folded_name == bindparam("name"))
_BY_ID = select(_s.document).where(_s.id == bindparam("id"))

#: Text that the JSON document of a query contains if the query joins more than two streams.
OF_MANY = '"left":{'

#: Number of decoded streams that a process caches, because every change and every planning reads all of them.
STREAMS_KEPT = 1024


class StreamRepository(Repository):
    """Streams. Two names must differ in more than case, because CQL ignores case."""

    def add(self, stream: Stream) -> Stream:
        """Register a stream.

        Args:
            stream: The stream; its id is ignored, and this method assigns a new one.

        Returns:
            The stream with its id.

        Raises:
            NameTaken: A stream with that name exists.
        """
        with self._database.write() as connection:
            if connection.execute(_LIVE_BY_NAME, {"name": stream.name.lower()}).first():
                raise NameTaken(f'stream "{stream.name}" exists already', hint="Choose another name.")
            added = dataclasses.replace(stream, id=next_id(connection, "stream"))
            connection.execute(
                insert(tables.streams).values(
                    id=added.id,
                    name=added.name,
                    folded_name=added.name.lower(),
                    document=encode(added).decode(),
                    created_at_us=self._now_us(),
                )
            )
        return added

    def set_initial_position(self, name: str, position: int) -> Stream:
        """Set the position at which reading of a stream begins, before any query uses the stream.

        Args:
            name: Name of the stream, in any case.
            position: Position at which reading begins if an offset does not name the stream.

        Returns:
            The stream as it is now.

        Raises:
            StreamNotFound: No stream has that name.
        """
        with self._database.write() as connection:
            moved = dataclasses.replace(self.get(name), initial_position=position)
            connection.execute(
                update(tables.streams)
                .where(tables.streams.c.id == moved.id)
                .values(document=encode(moved).decode())
            )
        return moved

    def replace(self, stream: Stream) -> None:
        """Replace a stored stream by a stream with its name and id; raises the errors of ``get``."""
        with self._database.write() as connection:
            self.get(stream.name)
            connection.execute(
                update(tables.streams)
                .where(tables.streams.c.id == stream.id)
                .values(document=encode(stream).decode())
            )

    def all(self) -> tuple[Stream, ...]:
        """Return the registered streams, by id."""
        with self._database.read() as connection:
            return tuple(_stream(row.document) for row in connection.execute(_LIVE))

    def get(self, name: str) -> Stream:
        """Return a registered stream.

        Args:
            name: Name of the stream, in any case.

        Returns:
            The stream.

        Raises:
            StreamNotFound: No stream has that name, or it was removed.
        """
        with self._database.read() as connection:
            row = connection.execute(_LIVE_BY_NAME, {"name": name.lower()}).first()
        if row is None:
            raise StreamNotFound(
                f'stream "{name}" does not exist', hint=did_you_mean(name, (s.name for s in self.all()))
            )
        return _stream(row.document)

    def by_id(self, stream_id: int) -> Stream:
        """Return a stream, even a removed one.

        Args:
            stream_id: Id of the stream.

        Returns:
            The stream.

        Raises:
            StreamNotFound: No stream ever had that id, or its tombstone was dropped.
        """
        with self._database.read() as connection:
            row = connection.execute(_BY_ID, {"id": stream_id}).first()
        if row is None:
            raise StreamNotFound(f"stream {stream_id} does not exist")
        return _stream(row.document)

    def remove(self, name: str) -> Stream:
        """Remove a stream; a tombstone keeps its id and definition for repeated batches.

        Args:
            name: Name of the stream, in any case.

        Returns:
            The stream as it was.

        Raises:
            StreamNotFound: No stream has that name.
            StreamInUse: Running or paused queries use the stream.
        """
        with self._database.write() as connection:
            stream = self.get(name)
            wanted = or_(_q.removed_version.is_(None), PAUSED)
            one_of_two = or_(_q.stream_a == stream.id, _q.stream_b == stream.id)
            found = connection.execute(
                select(_q.name, _q.document)
                .where(wanted, or_(one_of_two, _q.document.contains(OF_MANY)))
                .order_by(_q.id)
            )
            users = [
                name
                for name, document in found
                if any(side.stream_id == stream.id for side in stream_sides(decode(Query, document)))
            ]
            if users:
                names = ", ".join(f'"{user}"' for user in users[:10])
                more = f" and {len(users) - 10} more" if len(users) > 10 else ""
                raise StreamInUse(
                    f'stream "{stream.name}" is in use',
                    detail=f"Queries that use it: {names}{more}.",
                    hint="Remove these queries first.",
                )
            connection.execute(
                update(tables.streams).where(_s.id == stream.id).values(removed_at_us=self._now_us())
            )
        return stream


@lru_cache(maxsize=STREAMS_KEPT)
def _stream(document: str) -> Stream:
    """Return the stream that a JSON document describes."""
    return decode(Stream, document)

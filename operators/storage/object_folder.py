"""A folder in an object store, with a directory on each machine that is written first and caches.

    worker     directory/name  --PUT-->   s3://bucket/prefix/name
    engine                     <--GET--   directory/name (of its own machine)

An object is written once under a name that nobody writes with other bytes, so a cached file never is out of
date. The path of a batch neither lists nor renames: object stores do both slowly. Files of a batch go side by
side, each in one request if it is small.

Which store it is the URL says; credentials and addresses come from the environment of each process, in the
variables that the store's own tools read, such as AWS_ACCESS_KEY_ID (docs/operations.md).
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from operators.errors import StorageDown

#: Requests of one batch at a time: as many as hide the way to the store, few enough for its limits.
_SIDE_BY_SIDE = 16
#: A request is repeated so often, with growing pauses (4 s in all where nobody answers), and for so long at
#: most; then it has failed, and the job is started again.
_MOST_RETRIES = 10
_RETRIED_FOR = timedelta(seconds=30)
#: A cache is looked through once so many bytes were added, and emptied to this part of its size.
_LOOK_BYTES = 64 << 20
_TRIMMED_TO = 0.8

_Answer = TypeVar("_Answer")


class Stored(NamedTuple):
    """Metadata of a file.

    Attributes:
        bytes: Its length.
        etag: Tag that the store gives each content (an ETag), None if it gives none, as a directory.
    """

    bytes: int
    etag: str | None


#: Bytes that this process has added to each cache since it last looked through it.
_added: dict[Path, int] = {}


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    """Files of one kind.

    Attributes:
        directory: Directory on this machine; made when it is first needed.
        url: URL of the folder in the store, such as ``s3://bucket/prefix/results``.
        cache_bytes: Bytes that the directory may have; the files used longest ago go first.
    """

    directory: Path
    url: str
    cache_bytes: int

    def __truediv__(self, name: str) -> Path:
        """Return the path of a file on this machine."""
        return self.directory / name

    def prepare(self) -> None:
        """Make the directory on this machine.

        Raises:
            StorageDown: It is, or is in, a directory of another user, who could replace what is in it.
        """
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for directory in (self.directory, *self.directory.parents[:2]):
            if directory.stat().st_uid not in (0, os.getuid()):
                raise StorageDown(
                    f'cache directory "{self.directory}" cannot be used',
                    detail=f"{directory} belongs to another user.",
                    hint="Name a directory of the service's own in SLUICE_STORAGE_CACHE_DIR.",
                )

    def publish(self, names: Collection[str]) -> dict[str, str]:
        """Upload files; see `operators.storage.folder.publish`."""
        store = _store(self.url)

        def put(name: str) -> tuple[str, str | None]:
            with _translated(f"{self.url}/{name}"):
                return name, store.put(name, self.directory / name)["e_tag"]

        etags = {name: etag for name, etag in _side_by_side(put, names) if etag is not None}
        self._trim(sum(sizes_here(self.directory, names).values()))
        return etags

    def fetch(self, names: Collection[str]) -> None:
        """Download the files that are not here; see `operators.storage.folder.fetch`."""
        missing = []
        for name in names:
            try:
                os.utime(self.directory / name)  # used now: others are trimmed first
            except FileNotFoundError:
                missing.append(name)
        if not missing:
            return
        self.prepare()
        _side_by_side(self._get, missing)
        self._trim(sum(sizes_here(self.directory, missing).values()))

    def stored(self, names: Collection[str]) -> dict[str, Stored]:
        """Return the metadata of those of some objects that are there."""
        store = _store(self.url)

        def head(name: str) -> tuple[str, Stored] | None:
            with _translated(f"{self.url}/{name}"):
                try:
                    found = store.head(name)
                except FileNotFoundError:
                    return None
                return name, Stored(int(found["size"]), found["e_tag"])

        return dict(found for found in _side_by_side(head, names) if found is not None)

    def contents(self) -> dict[str, int]:
        """Return the bytes of all objects by name."""
        with _translated(self.url):
            return {meta["path"]: int(meta["size"]) for page in _store(self.url).list() for meta in page}

    def written_before(self, when_us: int) -> list[str]:
        """Return the names of objects that were last written before a moment."""
        with _translated(self.url):
            return [
                meta["path"]
                for page in _store(self.url).list()
                for meta in page
                if meta["last_modified"].timestamp() * 1e6 < when_us
            ]

    def remove(self, names: Collection[str]) -> None:
        """Remove objects."""
        store = _store(self.url)
        with _translated(self.url):
            # Not every store says of many at once which of them were there.
            try:
                store.delete(list(names))
            except FileNotFoundError:
                for name in names:
                    try:
                        store.delete(name)
                    except FileNotFoundError:
                        continue

    def create(self, name: str, data: bytes) -> bool:
        """Make an object unless there is one of that name; return whether it was made."""
        from obstore.exceptions import AlreadyExistsError

        with _translated(f"{self.url}/{name}"):
            try:
                _store(self.url).put(name, data, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def read(self, name: str) -> bytes | None:
        """Return the bytes of an object as they are in the store now, None if there is none."""
        with _translated(f"{self.url}/{name}"):
            try:
                return bytes(_store(self.url).get(name).bytes())
            except FileNotFoundError:
                return None

    def _get(self, name: str) -> None:
        # Readers in other processes see the whole file or none.
        partial = self.directory / f".{name}.{socket.gethostname()}.{os.getpid()}.{uuid.uuid4().hex[:8]}"
        try:
            with _translated(f"{self.url}/{name}"):
                try:
                    found = _store(self.url).get(name)
                except FileNotFoundError:
                    return
                with partial.open("wb") as file:
                    for chunk in found.stream(min_chunk_size=8 << 20):
                        file.write(chunk)
            partial.replace(self.directory / name)
        finally:
            partial.unlink(missing_ok=True)

    def _trim(self, added: int) -> None:
        """Remove the files used longest ago where there are more bytes than the cache may have.

        Processes that have a file mapped keep it; what is removed is downloaded again when it is needed.
        """
        _added[self.directory] = _added.get(self.directory, self.cache_bytes) + added
        if _added[self.directory] < min(_LOOK_BYTES, self.cache_bytes):
            return
        _added[self.directory] = 0
        files = []
        for path in self.directory.glob("[!.]*"):
            try:
                status = path.stat()
            except FileNotFoundError:
                continue  # another process trims, too
            files.append((status.st_mtime_ns, status.st_size, path))
        total = sum(size for _, size, _ in files)
        if total <= self.cache_bytes:
            return
        for _, size, path in sorted(files):
            if total <= self.cache_bytes * _TRIMMED_TO:
                break
            path.unlink(missing_ok=True)
            total -= size


def sizes_here(directory: Path, names: Collection[str]) -> dict[str, int]:
    """Return the bytes of those of some files that are in a directory."""
    found = {}
    for name in names:
        try:
            found[name] = (directory / name).stat().st_size
        except FileNotFoundError:
            continue
    return found


def _side_by_side(request: Callable[[str], _Answer], names: Collection[str]) -> list[_Answer]:
    """Make a request for each name; the first that fails fails all, once the others have ended."""
    if len(names) < 2:
        return [request(name) for name in names]
    with ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(names)), thread_name_prefix="storage") as threads:
        return list(threads.map(request, names))


@cache
def _store(url: str) -> Any:  # Any: one of several classes without a common base that is typed
    """Return the client of a store. Its threads do not survive a fork, so no process makes one before."""
    from obstore.store import from_url

    with _translated(url):
        return from_url(url, retry_config={"max_retries": _MOST_RETRIES, "retry_timeout": _RETRIED_FOR})


@contextmanager
def _translated(url: str) -> Iterator[None]:
    from obstore.exceptions import BaseError

    try:
        yield
    except BaseError as error:
        raise StorageDown(
            f'storage "{url}" cannot be used',
            detail=f"{str(error).splitlines()[0]}.",
            hint="Check that it exists, and that the environment of engine and workers has the right "
            "credentials and address.",
        ) from error

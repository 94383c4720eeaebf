"""Folders in an object store; each machine writes files to a directory first, which is also its cache.

    worker     directory/name  --PUT-->   s3://bucket/prefix/name
    engine                     <--GET--   directory/name (of its own machine)

An object is written only once, and its name is never reused for other bytes. So a cached file is never out of
date. A batch neither lists nor renames objects, because object stores do both slowly. Files of a batch are
sent in parallel, and each small file takes only one request.

The URL names the store. Credentials and addresses come from the environment of each process, from the
variables that the store's own tools use, such as AWS_ACCESS_KEY_ID (docs/operations.md).
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

from catalog.wording.outside import check_below
from operators.errors import StorageDown

#: Parallel requests of one batch: enough to hide the store's latency, but few enough for its rate limits.
_SIDE_BY_SIDE = 16
#: Retries of a request, with growing pauses (4 s in total if the store does not answer), and their maximum
#: duration. Then the request fails, and the job is started again.
_MOST_RETRIES = 10
_RETRIED_FOR = timedelta(seconds=30)
#: A cache is checked whenever this many bytes were added, and trimmed to this fraction of its maximum size.
_LOOK_BYTES = 64 << 20
_TRIMMED_TO = 0.8

_Answer = TypeVar("_Answer")


class Stored(NamedTuple):
    """Metadata of a file.

    Attributes:
        bytes: Length of the file.
        etag: Tag of the content (ETag); None if the file has no tag, as in a directory.
    """

    bytes: int
    etag: str | None


#: Bytes that this process has added to each cache since its last check of the cache.
_added: dict[Path, int] = {}


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    """Folder in an object store, with files of one kind.

    Attributes:
        directory: Directory on this machine; created when it is first needed.
        url: URL of the folder in the store, such as ``s3://bucket/prefix/results``.
        cache_bytes: Maximum bytes of the directory; least recently used files are removed first.
    """

    directory: Path
    url: str
    cache_bytes: int

    def __truediv__(self, name: str) -> Path:
        """Return the path of a file on this machine."""
        return self.directory / check_below(name)

    def prepare(self) -> None:
        """Make the directory on this machine.

        Raises:
            StorageDown: The directory or a parent belongs to another user, who could replace files.
        """
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for directory in (self.directory, *self.directory.parents[:2]):
            if directory.stat().st_uid not in (0, os.getuid()):
                raise StorageDown(
                    f'cache directory "{self.directory}" cannot be used',
                    detail=f"{directory} belongs to another user.",
                    hint="Set SLUICE_STORAGE_CACHE_DIR to a directory that belongs to the service's user.",
                )

    def publish(self, names: Collection[str]) -> dict[str, str]:
        """Upload files; see `operators.storage.folder.publish`."""
        store = _store(self.url)

        def put(name: str) -> tuple[str, str | None]:
            with _translated(f"{self.url}/{name}"):
                return name, store.put(name, self / name)["e_tag"]

        etags = {name: etag for name, etag in _side_by_side(put, names) if etag is not None}
        self._trim(sum(sizes_here(self.directory, names).values()))
        return etags

    def fetch(self, names: Collection[str]) -> None:
        """Download missing files; see `operators.storage.folder.fetch`."""
        missing = []
        for name in names:
            try:
                os.utime(self / name)  # mark as recently used
            except FileNotFoundError:
                missing.append(name)
        if not missing:
            return
        self.prepare()
        _side_by_side(self._get, missing)
        self._trim(sum(sizes_here(self.directory, missing).values()))

    def stored(self, names: Collection[str]) -> dict[str, Stored]:
        """Return the metadata of the named objects that exist, by name."""
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
        """Return the names of objects last written before a time."""
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
            # If one request is for many objects, some stores do not report which objects did not exist.
            try:
                store.delete(list(names))
            except FileNotFoundError:
                for name in names:
                    try:
                        store.delete(name)
                    except FileNotFoundError:
                        continue

    def create(self, name: str, data: bytes) -> bool:
        """Create an object unless one with this name exists; return whether it was created."""
        from obstore.exceptions import AlreadyExistsError

        with _translated(f"{self.url}/{name}"):
            try:
                _store(self.url).put(name, data, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def read(self, name: str) -> bytes | None:
        """Return the current bytes of an object in the store, or None if the object does not exist."""
        with _translated(f"{self.url}/{name}"):
            try:
                return bytes(_store(self.url).get(name).bytes())
            except FileNotFoundError:
                return None

    def _get(self, name: str) -> None:
        # Readers in other processes see either the whole file or no file.
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
            partial.replace(self / name)
        finally:
            partial.unlink(missing_ok=True)

    def _trim(self, added: int) -> None:
        """Remove the least recently used files if the cache is larger than its maximum size.

        Processes that have mapped a removed file can still read it. Other processes download the file again
        when they need it.
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
    """Return the sizes of the named files that are in a directory, by name."""
    found = {}
    for name in names:
        try:
            found[name] = (directory / name).stat().st_size
        except FileNotFoundError:
            continue
    return found


def _side_by_side(request: Callable[[str], _Answer], names: Collection[str]) -> list[_Answer]:
    """Make a request per name in parallel; raise the error of a failed request after all have ended."""
    if len(names) < 2:
        return [request(name) for name in names]
    with ThreadPoolExecutor(min(_SIDE_BY_SIDE, len(names)), thread_name_prefix="storage") as threads:
        return list(threads.map(request, names))


@cache
def _store(url: str) -> Any:  # Any: one of several classes without a common typed base class
    """Return the client of a store.

    The client's threads do not survive a fork, so a process must not fork after this call.
    """
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
            hint="Check that this storage exists, and that the environment of engine and workers has the "
            "right credentials and address.",
        ) from error

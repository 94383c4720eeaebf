"""Storage of segments, results, late rows and dead letters, chosen by ``SLUICE_STORAGE_URL``.

no URL                             in the data directory
file:///mnt/sluice                 in another directory, such as a mount that all machines share
s3://bucket/prefix, gs://, abfs:// in an object store, with a cache on each machine
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from urllib.request import url2pathname

from operators.storage.folder import Folder
from operators.storage.object_folder import ObjectFolder
from service.errors import InvalidSetting

#: URL schemes of the object stores that obstore can access.
OBJECT_STORES: Final = ("s3", "s3a", "gs", "abfs", "abfss", "az")

_HINT = (
    "Write file:///a/shared/mount, s3://bucket/prefix, gs://bucket/prefix or abfs://container/prefix, or "
    "leave it out to keep everything in the data directory."
)


@dataclass(frozen=True, slots=True)
class Storage:
    """Storage outside of the data directory.

    Attributes:
        url: URL, without a slash at its end.
        cache_dir: Directory on each machine that caches files of an object store.
        cache_bytes: Maximum size of the cache for each kind of files, bytes.
    """

    url: str
    cache_dir: Path
    cache_bytes: int

    def folder(self, name: str) -> Folder:
        """Return the folder of one kind of files, such as ``segments``."""
        parts = urlsplit(self.url)
        if parts.scheme == "file":
            return Path(url2pathname(parts.path)) / name
        return ObjectFolder(self.cache_dir / name, f"{self.url}/{name}", self.cache_bytes)


def storage_of(url: str | None, cache_dir: Path | None, cache_mb: int) -> Storage | None:
    """Return the storage that settings name, or None if they name none.

    Args:
        url: URL of the storage. None means that everything is in the data directory.
        cache_dir: Directory of the cache on each machine. None means this user's own directory for temporary
            files.
        cache_mb: Size of the cache, MB.

    Raises:
        InvalidSetting: The URL does not name a usable storage.
    """
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise _invalid(url, "The URL does not contain an absolute path on this machine.")
    elif parts.scheme not in OBJECT_STORES:
        raise _invalid(url, f'No storage has the scheme "{parts.scheme}".')
    elif not parts.netloc:
        raise _invalid(url, "The name of the bucket is missing.")
    elif (parts.username is not None and parts.scheme in ("s3", "s3a", "gs")) or parts.password is not None:
        raise _invalid(
            "a URL with credentials", "Credentials come from the environment, such as AWS_ACCESS_KEY_ID."
        )
    elif importlib.util.find_spec("obstore") is None:
        raise _invalid(url, "The package obstore is not installed: pip install 'sluice[storage]'.")
    base = cache_dir or Path(tempfile.gettempdir()) / f"sluice-cache-{os.getuid()}"
    # The cache's name depends on the URL, so that services with different URLs have separate caches.
    own = hashlib.sha256(url.encode()).hexdigest()[:16]
    return Storage(url.rstrip("/"), base.absolute() / own, cache_mb << 20)


def _invalid(url: str, detail: str) -> InvalidSetting:
    return InvalidSetting(f'setting "storage_url" cannot be {url}', detail=detail, hint=_HINT)

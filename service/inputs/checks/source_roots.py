"""Source roots: the directories that streams registered with the service may read files from.

A stream's source stores the root that it was registered under (``Confinement``), so every process that lists,
samples or reads its files is confined to that root. The path with links resolved is checked each time a file
is opened, not only at registration, since a directory can be replaced by a link later.

    registration   resolved path in a root?                 else the stream is refused
    listing        resolved path of each new file in it?    else the file is set aside
    reading        the opened file in it?                   else the file is set aside, or the batch fails
"""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from catalog.values.stream import Confinement, FilesSource, Stream
from operators.storage.folder import directory_here
from service.config.data_dir import DataDir
from service.errors import InvalidSetting, SourceNotAllowed

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SourceRoots:
    """Source roots of a service.

    Attributes:
        roots: The directories, absolute; relative paths start at the first one.
        data_dir: Data directory of the service. Its files are never read as input, except files in a root
            that lies inside it.
    """

    roots: tuple[Path, ...]
    data_dir: Path

    @classmethod
    def of(cls, roots: tuple[Path, ...], data_dir: DataDir) -> SourceRoots:
        """Return the roots that settings name; if settings name none, create and return the default root.

        Raises:
            InvalidSetting: A root is the data directory, or is equal to or inside the checkpoint, spill,
                segments, results, late rows or dead letters. A root that contains the data directory is
                allowed.
        """
        if not roots:
            data_dir.sources.mkdir(exist_ok=True)
            return cls((data_dir.sources,), data_dir.root)
        stored = (data_dir.results, data_dir.late, data_dir.dead_letters, data_dir.segments)
        own = (data_dir.checkpoint, data_dir.spill, *map(directory_here, stored))
        for root in roots:
            real = root.absolute().resolve()
            if real == data_dir.root.resolve() or any(real.is_relative_to(d.resolve()) for d in own):
                raise InvalidSetting(
                    f'source root "{root}" is the data directory, or in a directory that only the '
                    "service may use",
                    hint="Name directories of input files in SLUICE_SOURCE_ROOTS.",
                )
        return cls(tuple(root.absolute() for root in roots), data_dir.root)

    def confined(self, stream: Stream) -> Stream:
        """Return a stream whose source is confined to the root that contains its path.

        The error does not reveal whether the path exists.

        Raises:
            SourceNotAllowed: The path is outside of all roots.
        """
        source = stream.source
        if not isinstance(source, FilesSource):
            return stream
        real = os.path.realpath(_fixed_part(source.path))
        for root in self.roots:
            confinement = Confinement(os.path.realpath(root), os.path.realpath(self.data_dir))
            if confinement.allows(real):
                return replace(stream, source=replace(source, confinement=confinement))
        raise SourceNotAllowed(
            f'path "{source.path}" of stream "{stream.name}" is outside the directories that sources may '
            "read",
            detail="After links are resolved, a path must lie in one of these directories: "
            f"{', '.join(str(root) for root in self.roots)}. It must not be one of the service's own files.",
            hint="Put the files there, or have the operator name their directory in SLUICE_SOURCE_ROOTS.",
            path=("source", "path"),
        )

    def tell_outsiders(self, streams: Iterable[Stream]) -> None:
        """Log the streams whose files are read although they are not confined to a root.

        These streams were registered before roots existed, by clients that the operator had allowed to
        register streams.
        """
        for stream in streams:
            source = stream.source
            if isinstance(source, FilesSource) and source.confinement is None:
                log.warning(
                    "files of a stream are not confined to a source root, because the stream was registered "
                    "before roots existed; remove the stream and register it again to confine them",
                    extra={"stream": stream.name, "path": source.path},
                )


def _fixed_part(path: str) -> str:
    """Return the part of a path before the first component with a wildcard."""
    while glob.has_magic(path):
        path = os.path.dirname(path)
    return path

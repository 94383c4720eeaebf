"""Text files, compressed or not, which their names tell."""

from __future__ import annotations

import os

import pyarrow as pa

_HANDLES = "/proc/self/fd/"
#: As Arrow tells them, which cannot be asked for the name behind a handle.
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".lz4": "lz4", ".zst": "zstd"}


def text_input(path: str) -> pa.NativeFile:
    """Open a text file that is decompressed by its name's extension.

    Args:
        path: The file, or that of an open handle in ``/proc``.
    """
    name = os.readlink(path) if path.startswith(_HANDLES) else path
    return pa.input_stream(path, compression=_COMPRESSIONS.get(os.path.splitext(name)[1]))

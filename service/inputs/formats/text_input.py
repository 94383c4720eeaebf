"""Reads text files in any encoding, decompressed as their file extension says."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from service.errors import UnusableFile

#: Maximum size of a row in any text format, bytes; a longer text is most likely not a row.
MAX_ROW_BYTES: Final = 16 << 20

#: Bytes that are decoded at once.
_BLOCK_BYTES: Final = 4 << 20
_HANDLES = "/proc/self/fd/"
#: Compressions by extension, as in Arrow, which does not know the file name of an open handle.
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".lz4": "lz4", ".zst": "zstd"}
_BOM: Final = "\ufeff"
#: First bytes of files that are not text (no text begins with them), with the kind of file and advice.
_NOT_TEXT: Final = {
    b"\x1f\x8b": "compressed with gzip; end its name in .gz",
    b"BZh91AY&SY": "compressed with bzip2; end its name in .bz2",
    b"\x04\x22\x4d\x18": "compressed with LZ4; end its name in .lz4",
    b"\x28\xb5\x2f\xfd": "compressed with Zstandard; end its name in .zst",
    b"PK\x03\x04": "a zip archive, as workbooks of Excel are; unpack it, or save the sheet as CSV",
    b"PAR1\x15": "a Parquet file; declare format: parquet",
}


def text_input(path: str) -> pa.NativeFile:
    """Open a text file, decompressed according to its file extension.

    Args:
        path: Path of the file, or of an open handle in ``/proc``.
    """
    name = os.readlink(path) if path.startswith(_HANDLES) else path
    return pa.input_stream(path, compression=_COMPRESSIONS.get(os.path.splitext(name)[1]))


def text_blocks(path: str, encoding: str) -> Iterator[str]:
    r"""Yield the text of a file in blocks, without a byte order mark; ``\r\n`` is never split.

    Raises:
        UnusableFile: The file cannot be read, or is not in the encoding; the error names the line.
    """
    decoder = codecs.getincrementaldecoder(encoding)()
    lines, first, held = 1, True, ""
    try:
        with text_input(path) as source:
            while True:
                data = source.read(_BLOCK_BYTES)
                if first and (what := _other_kind(data)) is not None:
                    raise UnusableFile(f"it is not text but {what}")
                text = held + decoder.decode(data, final=not data)
                if first and text:
                    text, first = text.removeprefix(_BOM), False
                held = "\r" if data and text.endswith("\r") else ""
                text = text.removesuffix(held)
                lines += text.count("\n")
                if text:
                    yield text
                if not data:
                    return
    except FileNotFoundError:
        raise
    except UnicodeDecodeError as error:
        line = lines + error.object[: error.start].count(b"\n")
        raise UnusableFile(
            f"it is not {encoding.upper()} text: line {line} holds the byte "
            f"0x{error.object[error.start]:02x}; if the file has another encoding, declare it, such as "
            f"{_guess(error.object)}"
        ) from error
    except (pa.ArrowException, OSError, EOFError, UnicodeError) as error:
        raise UnusableFile(f"it cannot be read ({first_line(error)})") from error


def first_line(error: BaseException) -> str:
    """Return the first line of a library's error, or its type if it has no text."""
    return str(error).partition("\n")[0].strip().rstrip(".") or type(error).__name__


def _other_kind(data: bytes) -> str | None:
    """Return the kind of a file by its first bytes, with advice, or None for a text file."""
    return next((what for start, what in _NOT_TEXT.items() if data.startswith(start)), None)


def _guess(data: bytes) -> str:
    """Return the option for the most likely encoding of a text."""
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "encoding: utf-16"
    return "encoding: cp1252"

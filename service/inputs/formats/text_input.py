"""Reads text files in any encoding, decompressed as their file extension says."""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from catalog.values.stream import FilesSource
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
    return pa.input_stream(path, compression=_compression(path))


def _compression(path: str) -> str | None:
    name = os.readlink(path) if path.startswith(_HANDLES) else path
    return _COMPRESSIONS.get(os.path.splitext(name)[1])


def text_blocks(path: str, source: FilesSource) -> Iterator[str]:
    r"""Yield the text of a file in blocks, without a byte order mark; ``\r\n`` is never split.

    Raises:
        UnusableFile: The file cannot be read, or is not in the encoding; the error names the line. Or its
            text is larger than the source allows for compressed files.
    """
    encoding = source.dialect.encoding
    left = source.max_decompressed_mb << 20 if _compression(path) is not None else None
    decoder = codecs.getincrementaldecoder(encoding)()
    lines, first, held = 1, True, ""
    try:
        with text_input(path) as file:
            while True:
                data = file.read(_BLOCK_BYTES)
                if left is not None and (left := left - len(data)) < 0:
                    raise UnusableFile(
                        f"it has more than {source.max_decompressed_mb} MB when decompressed; split it, or "
                        "declare a larger max_decompressed_mb"
                    )
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


def text_lines(
    path: str, source: FilesSource, *, all_of_long: bool = True
) -> Iterator[tuple[int, list[str]]]:
    r"""Yield the lines of a file, some at a time, with the number of the first; only ``\n`` ends a line.

    A line of more than ``MAX_ROW_BYTES`` characters is cut off one character behind them.

    Args:
        path: The file.
        source: Its source.
        all_of_long: Whether to read such a line to its end before it is yielded.
    """
    number, held = 1, ""
    for block in text_blocks(path, source):
        if len(held) > MAX_ROW_BYTES:
            if not all_of_long:
                break
            block = block[end:] if (end := block.find("\n")) >= 0 else ""
        if block.isspace() and not held:  # much faster than line by line
            number += block.count("\n")
            held = block[block.rfind("\n") + 1 :]
            continue
        # str.splitlines would also cut at U+2028, which JSON strings may hold.
        *whole, held = (held + block).split("\n")
        held = held[: MAX_ROW_BYTES + 1]
        if whole:
            yield number, [line[: MAX_ROW_BYTES + 1] for line in whole]
            number += len(whole)
    yield number, [held]


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

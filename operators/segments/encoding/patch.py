"""Patches: changes that a migration makes to stored segments, without rewriting the segments.

    | length of header | header (JSON) | kept rows of part 0 | of part 1 | ... | lineage of segments |

A bucket writes at most one patch per batch. A patch is stored under its own id, like a segment. The names of
views refer to its parts (``encoding.view_names``). There are two kinds of parts, each numbered separately:

* *kept rows*: one bit per row of the segment or view that is patched, set if the row is kept. Many queries
  keep the same rows, so equal parts are written once.
* *lineage*: filters, including newly evaluated ones, and each row's bits for these filters. The bits of all
  segments with the same filters are in one column, narrowed as in a segment (``encoding.row_codec``).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from operators.errors import CorruptSegment
from operators.kernels.keys import Bools, Int64s, Words
from operators.segments.encoding.row_codec import decode_rows, encode_rows

_LENGTH = struct.Struct("<I")
#: Version of the encoding.
FORMAT = 1


@dataclass(slots=True, eq=False)
class PatchWriter:
    """Collects the parts of a patch."""

    _kept: dict[tuple[int, bytes], int] = field(default_factory=dict)
    # Part numbers and words, by filters.
    _lineage: dict[tuple[int, ...], list[tuple[int, Sequence[Words]]]] = field(default_factory=dict)
    _relabelled: int = 0

    def keep(self, index: Int64s, rows: int) -> int:
        """Add a part with kept rows.

        Args:
            index: int64[k], ascending, indices of the kept rows.
            rows: Number of rows from which the kept rows are chosen.

        Returns:
            The number of the part.
        """
        keep = np.zeros(rows, dtype=np.bool_)
        keep[index] = True
        return self._kept.setdefault((rows, np.packbits(keep).tobytes()), len(self._kept))

    def relabel(self, filters: tuple[int, ...], words: Sequence[Words]) -> int:
        """Add a part with lineage.

        Args:
            filters: Numbers of the filters, in the order of their bits; at least one.
            words: Lineage words of the n rows, uint64[n] each.

        Returns:
            The number of the part.
        """
        number = self._relabelled
        self._relabelled += 1
        self._lineage.setdefault(filters, []).append((number, words))
        return number

    def encode(self) -> bytes:
        """Return the stored form."""
        bodies = [bits for _, bits in self._kept]
        groups = []
        for filters, parts in self._lineage.items():
            columns = [np.concatenate(column) for column in zip(*(words for _, words in parts), strict=True)]
            names = [str(number) for number in range(len(columns))]
            bodies.append(encode_rows(pa.RecordBatch.from_arrays(list(map(pa.array, columns)), names=names)))
            numbered = [[number, len(words[0])] for number, words in parts]
            groups.append({"filters": filters, "parts": numbered, "bytes": len(bodies[-1])})
        header = {"format": FORMAT, "kept": [rows for rows, _ in self._kept], "lineage": groups}
        text = json.dumps(header, separators=(",", ":")).encode()
        return b"".join([_LENGTH.pack(len(text)), text, *bodies])


@dataclass(frozen=True, slots=True, eq=False)
class Patch:
    """A stored patch.

    Attributes:
        id: Stored id of the patch.
        stored_bytes: Length of the stored form.
    """

    id: str
    stored_bytes: int
    _kept: Sequence[tuple[int, pa.Buffer]]
    _lineage: dict[int, tuple[tuple[int, ...], list[Words]]]

    def kept(self, number: int, rows: int) -> Bools:
        """Return which of ``rows`` rows a part keeps, bool[rows].

        Raises:
            CorruptSegment: The part has another number of rows, or does not exist.
        """
        if number >= len(self._kept) or self._kept[number][0] != rows:
            raise CorruptSegment(f'patch "{self.id}" has no selection {number} from {rows} rows')
        bits = np.frombuffer(self._kept[number][1], dtype=np.uint8)
        keep: Bools = np.unpackbits(bits, count=rows).view(np.bool_)
        return keep

    def lineage(self, number: int, rows: int) -> tuple[tuple[int, ...], list[Words]]:
        """Return the filters and lineage words of a part that covers ``rows`` rows.

        Raises:
            CorruptSegment: The part has another number of rows, or does not exist.
        """
        filters, words = self._lineage.get(number, ((), []))
        if not words or len(words[0]) != rows:
            raise CorruptSegment(f'patch "{self.id}" has no lineage {number} for {rows} rows')
        return filters, words

    @classmethod
    def decode(cls, data: bytes | pa.Buffer, patch_id: str) -> Patch:
        """Read the stored form; the kept rows remain views of ``data``.

        Raises:
            CorruptSegment: The data are not a patch, or are in an unknown format.
        """
        buffer = pa.py_buffer(data)
        try:
            (length,) = _LENGTH.unpack_from(memoryview(buffer))
            start = _LENGTH.size + length
            header = json.loads(buffer.slice(_LENGTH.size, length).to_pybytes())
            version = header["format"]
        except (struct.error, IndexError, KeyError, TypeError, ValueError) as error:
            raise CorruptSegment(f'patch "{patch_id}" cannot be read', detail=str(error)) from error
        if version != FORMAT:
            raise CorruptSegment(f'patch "{patch_id}" has format {version}, this version reads {FORMAT}')
        kept, lineage = [], {}
        try:
            for rows in header["kept"]:
                size = -(-rows // 8)
                kept.append((rows, buffer.slice(start, size)))
                start += size
            for group in header["lineage"]:
                words = decode_rows(buffer.slice(start, group["bytes"])).columns
                start += group["bytes"]
                first = 0
                for number, rows in group["parts"]:
                    own = [word.slice(first, rows).to_numpy() for word in words]
                    lineage[number] = (tuple(group["filters"]), own)
                    first += rows
            if start != buffer.size:
                raise EOFError(f"the patch has {buffer.size} bytes instead of {start}")
        except (pa.ArrowException, OSError, EOFError, IndexError, KeyError, TypeError, ValueError) as error:
            raise CorruptSegment(f'patch "{patch_id}" cannot be read', detail=str(error)) from error
        return cls(patch_id, buffer.size, kept, lineage)

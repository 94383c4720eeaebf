"""Values as JSON: the form in which the catalog stores streams, queries, plans and manifests.

The JSON is compact and its fields are in declared order, so the same value gives the same bytes. Decoding is
strict about types, ignores unknown fields and gives missing fields their defaults. A field with a default can
therefore be added to a value without migrating the stored documents.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import ConfigDict, TypeAdapter, ValidationError

from catalog.errors import CorruptDocument
from catalog.wording.mistakes import mistake

T = TypeVar("T")

# pydantic accepts a configuration for a tuple but not for a plain dataclass. Without a configuration it
# encodes NaN and infinities as null, which cannot be decoded. A value is therefore encoded as a one-element
# tuple, and the brackets are cut off.
_CONFIG = ConfigDict(ser_json_inf_nan="constants")


@cache
def _adapter(type_: Any) -> TypeAdapter[tuple[Any]]:
    """Return the cached pydantic adapter of a type; building one takes milliseconds."""
    return TypeAdapter(tuple[type_], config=_CONFIG)


def encode(value: object) -> bytes:
    """Return the JSON document of a value of ``catalog.values``.

    >>> from catalog.values.stream import Column
    >>> encode(Column("k", "bigint"))
    b'{"name":"k","type":"bigint"}'

    Args:
        value: An instance of one of the value dataclasses.

    Returns:
        UTF-8 JSON.
    """
    return _adapter(cast("Hashable", type(value))).dump_json((value,), warnings="error")[1:-1]


def encode_short(value: object) -> bytes:
    """Return the JSON document of a value, without the fields that have their default value.

    ``decode`` restores the same value from this document.

    >>> from catalog.values.counters.family_counters import SliceCounters
    >>> encode_short(SliceCounters("s1s2-52383a8d", "a", 1, rows=7))
    b'{"family":"s1s2-52383a8d","side":"a","slice":1,"rows":7}'

    Args:
        value: See ``encode``.

    Returns:
        UTF-8 JSON.
    """
    adapter = _adapter(cast("Hashable", type(value)))
    return adapter.dump_json((value,), exclude_defaults=True, warnings="error")[1:-1]


def decode(type_: type[T], data: bytes | str) -> T:
    """Return the value that a JSON document describes.

    >>> from catalog.values.stream import Column
    >>> decode(Column, b'{"name":"k","type":"bigint"}')
    Column(name='k', type='bigint')

    Args:
        type_: The value's dataclass.
        data: Result of ``encode`` or ``encode_short``.

    Returns:
        A value equal to the encoded value.

    Raises:
        CorruptDocument: The document is not a value of the type.
    """
    raw = data.encode() if isinstance(data, str) else data
    try:
        (value,) = _adapter(cast("Hashable", type_)).validate_json(b"[" + raw + b"]", strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        path = first["loc"][1:]  # drop the index into the one-element tuple
        said = mistake(first, path).said_of(f'"{".".join(map(str, path))}"' if path else "it")
        raise CorruptDocument(
            f'stored document is not a valid "{type_.__name__}"',
            detail=f"{error.error_count()} errors, the first: {said}.",
        ) from error
    return cast("T", value)

"""Mistakes in a YAML or JSON file in our words, each with file, line and column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from catalog.errors import InvalidInput
from catalog.wording import nearest_or_known
from service.documents.yaml_document import ItemPath, YamlDocument

#: What pydantic's type errors mean to somebody who writes YAML.
_EXPECTED = {
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "dict_type": "a mapping of keys to values",
    "list_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
}


@contextmanager
def locating(document: YamlDocument, path: ItemPath, *, text_at: ItemPath | None = None) -> Iterator[None]:
    """Give errors raised inside a place in the document; the class of the error stays what it is.

    Args:
        document: The file.
        path: Item of the document that is being looked at.
        text_at: Scalar that the error's own location refers to.
    """
    try:
        yield
    except InvalidInput as error:
        if error.location is not None and error.location.file is None and text_at is not None:
            error.location = document.inside_scalar(text_at, error.location)
        elif error.location is None:
            error.location = document.location((*path, *error.path))
        raise


def first_mistake(
    error: ValidationError,
    document: YamlDocument,
    kind: type[InvalidInput],
    known_keys: Callable[[ItemPath], list[str]],
) -> InvalidInput:
    """Return the first thing that a model finds wrong with a document.

    Args:
        error: What the model found.
        document: The file.
        kind: Class of the error.
        known_keys: Keys that are allowed beside the last one of a path.
    """
    first = error.errors()[0]
    path: ItemPath = tuple(first["loc"])
    last = str(path[-1]) if path else ""
    found = first["type"]
    if found == "missing":
        return kind(f'key "{last}" is missing', location=document.location(path[:-1]))
    if found == "extra_forbidden":
        return kind(
            f'key "{last}" is not known here',
            hint=nearest_or_known(last, known_keys(path)),
            location=document.location(path, key=True),
        )
    if found in ("union_tag_invalid", "union_tag_not_found"):
        return _source_type_error(path, first.get("ctx", {}), document, kind)
    location = document.location(path)
    where = f"{last}: " if isinstance(path[-1] if path else 0, str) else ""
    if found in _EXPECTED:
        return kind(f"{where}expected {_EXPECTED[found]}", location=location)
    if found == "literal_error":
        known = [word.strip(" '") for word in first["ctx"]["expected"].replace(" or ", ",").split(",")]
        return kind(
            f'{where}"{first["input"]}" is not known',
            detail=f"Known: {', '.join(known)}.",
            hint=nearest_or_known(str(first["input"]), known),
            location=location,
        )
    message = first["msg"].removeprefix("Value error, ")
    return kind(f"{where}{message[:1].lower()}{message[1:]}", location=location)


def _source_type_error(
    path: ItemPath, context: dict[str, Any], document: YamlDocument, kind: type[InvalidInput]
) -> InvalidInput:
    known = ["files", "http", "generator"]
    tag = context.get("tag")
    if tag is None:
        return kind(
            'key "type" is missing',
            hint=f"Write one of {', '.join(known)}.",
            location=document.location(path),
        )
    return kind(
        f'source type "{tag}" is not known',
        hint=nearest_or_known(str(tag), known),
        location=document.location((*path, "type")),
    )

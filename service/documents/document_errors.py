"""Mistakes in a YAML or JSON file in our words, each with file, line and column."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from catalog.errors import InvalidInput
from catalog.mistakes import KnownNames, mistake
from service.documents.yaml_document import ItemPath, YamlDocument


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
    known_names: KnownNames,
) -> InvalidInput:
    """Return the first thing that a model finds wrong with a document.

    Args:
        error: What the model found.
        document: The file.
        kind: Class of the error.
        known_names: Names that may stand where the last one of a path does.
    """
    first = error.errors()[0]
    found = mistake(first, tuple(first["loc"]), known_names)
    name = found.path[-1] if found.path else None
    if found.about == "key":
        subject = f'key "{name}"'
    else:
        subject = name if isinstance(name, str) else ""
    return kind(
        found.said_of(subject),
        detail=found.detail,
        hint=found.hint,
        location=document.location(found.path, key=first["type"] == "extra_forbidden"),
    )

"""Errors in a YAML or JSON file in Sluice's words, each with file, line and column."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from catalog.errors import InvalidInput
from catalog.mistakes import KnownNames, mistake
from service.documents.yaml_document import ItemPath, YamlDocument


@contextmanager
def locating(document: YamlDocument, path: ItemPath, *, text_at: ItemPath | None = None) -> Iterator[None]:
    """Add the place in the document to errors raised inside; their class does not change.

    Args:
        document: The file.
        path: Item of the document that is being checked.
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
    """Return an error for the first fault that a model found in a document.

    Args:
        error: The model's error.
        document: The file.
        kind: Class of the error.
        known_names: Gives the names that are allowed in place of the last name of a path.
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

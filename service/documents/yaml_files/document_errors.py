"""First mistake in a YAML or JSON file in Sluice's words, with file, line and column."""

from __future__ import annotations

from pydantic import ValidationError

from catalog.errors import InvalidInput
from catalog.wording.mistakes import KnownNames, mistake
from service.documents.yaml_files.yaml_document import YamlDocument


def first_mistake(
    error: ValidationError,
    document: YamlDocument,
    kind: type[InvalidInput],
    known_names: KnownNames,
) -> InvalidInput:
    """Return an error for the first mistake that a model found in a document.

    Args:
        error: Pydantic's error with all mistakes.
        document: The file.
        kind: Class of the error.
        known_names: Returns the names that are allowed as the last name of a path.
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

"""OpenAPI texts that FastAPI does not generate: descriptions of fields, examples of answers.

A dataclass describes its fields under ``Attributes:`` in its docstring. The file ``openapi_texts.json``
describes fields of models that other packages define, and fields that several answers share, by field name or
as ``Model.name``. The file also contains the examples: ``answers`` has the JSON examples by model,
``other_answers`` has all others by operation and media type.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_TEXTS = Path(__file__).with_name("openapi_texts.json")
#: One attribute of a Google-style docstring: its name and description, with more deeply indented continuation
#: lines.
_ATTRIBUTE = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
#: Suffix that pydantic adds if a model has different schemas in requests and in answers.
_DIRECTION = re.compile(r"-(Input|Output)$")

_NAMES = {"streams": "Name of the stream.", "queries": "Name of the query."}


def describe_document(document: dict[str, Any]) -> None:
    """Describe all fields and path parameters of a document, and add an example of each answer."""
    for model, schema in document["components"]["schemas"].items():
        _describe_fields(_DIRECTION.sub("", model), schema)
    for path, _, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path" and "description" not in parameter:
                parameter["description"] = _NAMES[path.split("/")[3]]
        for response in operation["responses"].values():
            for media_type, content in response.get("content", {}).items():
                _complete(operation["operationId"], media_type, content)


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path, method and description of every operation."""
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


@cache
def openapi_texts() -> Mapping[str, Mapping[str, Any]]:
    """Return the file: descriptions in ``fields``, examples in ``answers`` and ``other_answers``."""
    found: dict[str, dict[str, Any]] = json.loads(_TEXTS.read_text(encoding="utf-8"))
    return found


def _describe_fields(model: str, schema: dict[str, Any]) -> None:
    text, _, attributes = schema.get("description", "").partition("\n\nAttributes:\n")
    own = {name: " ".join(words.split()) for name, words in _ATTRIBUTE.findall(attributes)}
    if own:
        schema["description"] = text
    shared = openapi_texts()["fields"]
    for name, field in schema.get("properties", {}).items():
        found = own.get(name) or shared.get(f"{model}.{name}") or shared.get(name)
        if "description" not in field and found is not None:
            field["description"] = found.replace("``", "`")


def _complete(operation: str, media_type: str, content: dict[str, Any]) -> None:
    # FastAPI describes server-sent events with OpenAPI 3.2's ``itemSchema``; OpenAPI 3.1 has no such keyword,
    # so the stream is described as text.
    if content.pop("itemSchema", None) is not None:
        content["schema"] = {"type": "string"}
    texts, schema = openapi_texts(), content["schema"]
    alternatives = schema.get("anyOf", [{}])
    model = schema.get("$ref", alternatives[0].get("$ref", "")).rpartition("/")[2]
    example = texts["other_answers"].get(operation, {}).get(media_type) or texts["answers"].get(model)
    if example is not None:
        content.setdefault("example", example)

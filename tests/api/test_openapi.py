"""The OpenAPI document as generators of clients read it: valid, named, described, with true examples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from api.app import create_app
from api.documentation.descriptions import openapi_texts, operations
from service.config.settings import load_settings


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return create_app(load_settings(data_dir=tmp_path_factory.mktemp("data"))).openapi()


def contents(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Name, media type and content of every answer."""
    for _, _, operation in operations(document):
        for status, response in operation["responses"].items():
            for media_type, content in response.get("content", {}).items():
                yield f"{operation['operationId']} {status}", media_type, content


def test_the_document_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    assert [error.message for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


def test_operation_ids_are_short_names_of_their_own(document: dict[str, Any]) -> None:
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert "add_query" in names
    assert len(names) == len(set(names))
    assert [name for name in names if not re.fullmatch(r"[a-z]+(_[a-z]+)*", name)] == []


def test_every_field_and_parameter_is_described(document: dict[str, Any]) -> None:
    fields = {
        f"{model}.{name}": field
        for model, schema in document["components"]["schemas"].items()
        for name, field in schema.get("properties", {}).items()
    }
    parameters = {
        f"{operation['operationId']} {parameter['name']}": parameter
        for _, _, operation in operations(document)
        for parameter in operation.get("parameters", ())
    }
    assert [name for name, found in (fields | parameters).items() if not found.get("description")] == []
    models = {re.sub(r"-(Input|Output)$", "", name.partition(".")[0]) for name in fields}
    known = {name.partition(".")[0] for name in openapi_texts()["fields"] if "." in name}
    assert known <= models, "descriptions of models that are gone"


def test_every_answer_has_an_example_that_fits_its_schema(document: dict[str, Any]) -> None:
    base = "urn:sluice:openapi"
    registry = Registry().with_resource(base, Resource(document, DRAFT202012))
    used = set()
    for where, media_type, content in contents(document):
        example = content.get("example")
        assert example is not None, f"{where} {media_type}"
        if media_type not in ("application/json", "application/problem+json"):
            continue
        schema = json.loads(json.dumps(content["schema"]).replace('"#/', f'"{base}#/'))
        validator = OAS31Validator(schema, registry=registry)
        assert [error.message for error in validator.iter_errors(example)] == [], where
        used |= {name for name, answer in openapi_texts()["answers"].items() if answer == example}
    assert used == set(openapi_texts()["answers"])

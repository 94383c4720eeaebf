"""Reference pages made of the code: REST of the OpenAPI document, the command line of its commands."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from api.app import create_app
from api.documentation.descriptions import operations
from api.main import app
from service.config.settings import load_settings


def rest_page() -> str:
    """Return the page of the REST API."""
    with tempfile.TemporaryDirectory() as directory:
        document = create_app(load_settings(data_dir=Path(directory))).openapi()
    return "\n".join(_rest(document))


def _rest(document: dict[str, Any]) -> Iterator[str]:
    yield "# REST reference\n"
    yield "Generated from the OpenAPI document, which a service has at `/api/v1/openapi.json`."
    yield "At `/api/v1/docs` it has a page to try calls.\n"
    yield document["info"]["description"] + "\n"
    by_tag: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, method, operation in operations(document):
        by_tag.setdefault(operation.get("tags", ["other"])[0], []).append((path, method, operation))
    for tag, found in by_tag.items():
        yield f"## {tag.capitalize()}\n"
        for path, method, operation in found:
            yield from _operation(path, method, operation)
    yield "## Objects\n"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield f"### {name}\n"
        if "enum" in schema:
            yield f"{_type(schema)}\n"
        elif schema.get("properties"):
            yield "| field | type | |\n| --- | --- | --- |"
            required = schema.get("required", ())
            for field, kind in schema["properties"].items():
                mark = "" if field in required else "optional; "
                yield f"| `{field}` | {_type(kind)} | {mark}{_cell(kind.get('description', ''))} |"
            yield ""


def _operation(path: str, method: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"### {method.upper()} {path.removeprefix('/api/v1')}\n".replace("{", "\\{")
    yield f"{operation.get('description', operation.get('summary', ''))}\n"
    if parameters := operation.get("parameters"):
        yield "| parameter | in | type | |\n| --- | --- | --- | --- |"
        for parameter in parameters:
            kind = _type(parameter["schema"])
            described = _cell(parameter.get("description", ""))
            yield f"| `{parameter['name']}` | {parameter['in']} | {kind} | {described} |"
        yield ""
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"Body: `{media_type}`, {_type(content.get('schema', {}))}.\n"
    yield "| status | answer | |\n| --- | --- | --- |"
    for status, response in operation["responses"].items():
        kinds = {_type(c.get("schema", {})) for c in response.get("content", {}).values()}
        yield f"| {status} | {', '.join(sorted(kinds))} | {_cell(response['description'])} |"
    yield ""


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(_type(choice) for choice in choices)
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if schema.get("type") == "array" and "items" in schema:
        return f"array of {_type(schema['items'])}"
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def cli_page() -> str:
    """Return the page of the command line."""
    return "\n".join(["# Command line\n", "Generated from the commands.\n", *_command("sluice", _root())])


def _root() -> Any:
    return typer.main.get_command(app)


def _command(name: str, command: Any) -> Iterator[str]:
    if (members := getattr(command, "commands", None)) is not None:
        if " " in name:
            yield f"## {name}\n\n{command.help}\n"
        for member, found in members.items():
            yield from _command(f"{name} {member}", found)
        return
    yield f"{'###' if name.count(' ') > 1 else '##'} {name}\n"
    yield f"{command.help}\n"
    rows = [_parameter(parameter) for parameter in command.params if parameter.name != "help"]
    if rows:
        yield "| argument or option | default | |\n| --- | --- | --- |"
        yield from rows
        yield ""


def _parameter(parameter: Any) -> str:
    named = parameter.param_type_name == "option"
    label = ", ".join(parameter.opts) if named else parameter.metavar or parameter.name.upper()
    shown = parameter.show_default if isinstance(parameter.show_default, str) else None
    default = shown or ("" if parameter.default in (None, False, ()) else str(parameter.default))
    return f"| `{_cell(label)}` | {_cell(default)} | {_cell(parameter.help or '')} |"

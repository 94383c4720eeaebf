"""Decodes Avro messages in the form of Confluent's serializers, with schemas from a registry.

    0 | id of the schema, 4 bytes, big-endian | the value in Avro's binary form

A process requests each schema only once, since the schema of an id never changes. Client and decoder are
libraries of an optional extra of the package, imported only if a stream needs them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from catalog.values.stream import KafkaSource, SchemaRegistry, Stream
from service.errors import KafkaDown, KafkaUnsupported
from service.inputs.formats.conversion.values import JsonConstant
from service.kafka.kafka_client import secret_value

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

#: Timeout of one request to the registry, and number of retries: in all about 10 s, which is also the timeout
#: of brokers.
_TIMEOUT_S: Final = 3.0
_RETRIES: Final = 2
_RETRIES_WAIT_MS: Final = 200

_PREFIX_BYTES: Final = 5
_NOT_FOUND: Final = 404

#: Conversions of Avro values to their form in JSON. Times without an offset are UTC, as in JSON.
_AS_JSON: Final[Mapping[type, Callable[[Any], object]]] = {
    datetime: datetime.isoformat,
    date: date.isoformat,
    UUID: str,
    float: lambda value: value if math.isfinite(value) else JsonConstant(value),
}


class UnfitAvroError(ValueError):
    """A value cannot be read as Avro."""


def avro_decoder(stream: Stream, source: KafkaSource, names: Sequence[str]) -> Callable[[bytes], object]:
    """Return a function that decodes a message's value; for a record, it returns the ``names`` in JSON form.

    The function raises `UnfitAvroError` for bytes that are not a valid value, and `KafkaDown` if the registry
    cannot be reached.

    Args:
        stream: Stream of the messages.
        source: Source of the stream, which names a registry.
        names: Fields to return.

    Raises:
        KafkaUnsupported: A library is not installed.
        SecretMissing: The password is not set.
        KafkaDown: No client of the registry can be made.
    """
    _client(_registry(source))
    from fastavro import schemaless_reader

    # Ids unknown to the registry, such as those of bytes that are not Avro, are also requested only once.
    schemas: dict[int, Any] = {}
    unknown: dict[int, str] = {}

    def decode(value: bytes) -> object:
        if len(value) < _PREFIX_BYTES or value[0]:
            raise UnfitAvroError("it does not begin with the id of a schema")
        schema_id = int.from_bytes(value[1:_PREFIX_BYTES], "big")
        if schema_id in unknown:
            raise UnfitAvroError(unknown[schema_id])
        schema = schemas.get(schema_id)
        if schema is None:
            try:
                schema = schemas[schema_id] = _parsed(stream, source, schema_id)
            except UnfitAvroError as error:
                unknown[schema_id] = str(error)
                raise
        rest = BytesIO(value)
        rest.seek(_PREFIX_BYTES)
        try:
            found = schemaless_reader(rest, schema, None)
        except (ArithmeticError, EOFError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise UnfitAvroError(f"schema {schema_id} cannot read it ({type(error).__name__})") from error
        if rest.tell() != len(value):
            raise UnfitAvroError(f"bytes follow the value that schema {schema_id} reads")
        if not isinstance(found, dict):
            return _plain(found)
        return {name: _plain(found[name]) for name in names if name in found}

    return decode


def check_registry(stream: Stream, source: KafkaSource) -> None:
    """Refuse a registry that cannot be reached; raises the same errors as `avro_decoder`."""
    _asked(stream, source, lambda client: client.get_schema_types())


def _plain(value: Any) -> object:
    convert = _AS_JSON.get(type(value))
    return value if convert is None else convert(value)


@lru_cache(maxsize=1000)
def _parsed(stream: Stream, source: KafkaSource, schema_id: int) -> Any:  # Any: the parser's own form
    """Return a schema in the form that the decoder requires."""

    def ask(client: SchemaRegistryClient) -> Any:
        schema = client.get_schema(schema_id)
        if (schema.schema_type or "AVRO") != "AVRO":
            raise UnfitAvroError(f"schema {schema_id} is not of Avro but of {schema.schema_type}")
        return _parse(client, schema, {})

    found = _asked(stream, source, ask)
    if found is None:
        raise UnfitAvroError(f"the registry has no schema {schema_id}")
    return found


def _parse(client: SchemaRegistryClient, schema: Schema, named: dict[str, Any]) -> Any:
    """Parse a schema together with the schemas that it refers to."""
    from fastavro.schema import SchemaParseException, parse_schema

    for reference in schema.references or ():
        if reference.name not in named:
            found = client.get_version(str(reference.subject), int(str(reference.version)), deleted=True)
            _parse(client, found.schema, named)
    try:
        return parse_schema(json.loads(schema.schema_str or ""), named_schemas=named)
    except (SchemaParseException, LookupError, TypeError, ValueError) as error:
        raise UnfitAvroError(f"its schema cannot be parsed: {error}") from error


def _asked(stream: Stream, source: KafkaSource, ask: Callable[[SchemaRegistryClient], Any]) -> Any:
    """Return an answer of the registry, or None if the registry does not have the requested item."""
    registry = _registry(source)
    client = _client(registry)
    from confluent_kafka.schema_registry import SchemaRegistryError
    from httpx2 import HTTPError, InvalidURL

    try:
        return ask(client)
    except SchemaRegistryError as error:
        if error.http_status_code == _NOT_FOUND:
            return None
        _client.cache_clear()  # the next attempt looks the password up again
        raise _down(stream, source, f"{error.error_message} (status {error.http_status_code})") from error
    except (HTTPError, InvalidURL) as error:
        raise _down(stream, source, str(error) or type(error).__name__) from error
    except json.JSONDecodeError as error:
        raise _down(stream, source, "an answer that is not JSON") from error


def _down(stream: Stream, source: KafkaSource, said: str) -> KafkaDown:
    return KafkaDown(
        f'topic "{source.topic}" of stream "{stream.name}" cannot be read',
        detail=f"The registry of its schemas says: {said}.",
        hint=f"Check the registry, {_registry(source).url}, and the permissions of this client.",
        stream_id=stream.id,
    )


def _registry(source: KafkaSource) -> SchemaRegistry:
    assert source.registry is not None, "checked where the stream was registered"
    return source.registry


def _without_libraries() -> KafkaUnsupported:
    return KafkaUnsupported(
        "messages in Avro need libraries that are not installed",
        hint='Install Sluice with its extra "avro": pip install "sluice[avro]".',
    )


@lru_cache(maxsize=8)
def _client(registry: SchemaRegistry) -> SchemaRegistryClient:
    """Return this process's client of a registry."""
    # Without the extra "avro" the client's module exists, but its imports fail.
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise _without_libraries() from error
    if find_spec("fastavro") is None:
        raise _without_libraries()
    options: dict[str, Any] = {
        "url": registry.url,
        "timeout": _TIMEOUT_S,
        "max.retries": _RETRIES,
        "retries.wait.ms": _RETRIES_WAIT_MS,
    }
    if registry.username is not None:
        password = "" if registry.password is None else secret_value(registry.password)
        options["basic.auth.user.info"] = f"{registry.username}:{password}"
    return SchemaRegistryClient(options)

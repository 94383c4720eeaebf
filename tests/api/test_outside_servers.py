"""Streams and sinks on brokers and databases: which servers are allowed, and secrets that nobody sees."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.without_engine import CQL, Service
from tests.builders import stream_document
from tests.service.kafka.brokers import Brokers, brokers
from tests.service.kafka.registry import registry

SASL = {"mechanism": "PLAIN", "username": "u", "password": {"env": "SLUICE_SECRET_KAFKA"}}
TABLE = {
    "type": "postgres",
    "server": "db:5432",
    "database": "d",
    "user": "u",
    "password": {"env": "SLUICE_SECRET_DB"},
    "table": "public.gusts",
    "key": ["k"],
    "tls": "verify-full",
}
TOPIC = {
    "type": "kafka",
    "bootstrap": "b:1,c:2",
    "topic": "gusts",
    "key": "k",
    "tls": {"ca": "PEM"},
    "sasl": SASL,
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Brokers]:
    with brokers() as found:
        yield found


AVRO = {"format": "avro", "registry": {"url": "http://registry:8081"}}


@pytest.fixture
def service(tmp_path: Path, kafka: Brokers) -> Iterator[Service]:
    opened = Service(tmp_path / "data", servers=f"{kafka.bootstrap},db:5432,b:1,c:2")
    yield opened
    opened.close()


def topic_document(kafka: Brokers, topic: str, **more: Any) -> dict[str, Any]:
    source: Any = {"type": "kafka", "bootstrap": kafka.bootstrap, "topic": topic} | more
    return stream_document("A") | {"source": source}


def test_a_topic_is_registered_and_shown_as_it_was(service: Service, kafka: Brokers) -> None:
    kafka.tell("create", "shown", 2)
    document = topic_document(kafka, "shown", headers={"k": "key"}, on_bad="dead-letter")
    made = service.made("POST", "/streams", document)
    assert made["source"] == document["source"] | {"format": "json"}
    assert made["max_ahead"] == "1d"
    assert service.made("GET", "/streams/A")["source"] == made["source"]
    refused = service.send("POST", "/streams/A/events", [{"ts": 1}])
    assert refused.json()["code"] == "not-an-http-stream"


def test_a_topic_in_avro_is_shown_with_its_registry(service: Service, kafka: Brokers, tmp_path: Path) -> None:
    kafka.tell("create", "in-avro", 1)
    with registry() as schemas:
        address = schemas.url.removeprefix("http://")
        opened = Service(tmp_path / "other", servers=f"{kafka.bootstrap},{address}")
        named = {"url": schemas.url}
        document = topic_document(kafka, "in-avro", format="avro", registry=named)
        assert opened.made("POST", "/streams", document)["source"]["registry"] == named
        opened.close()


def test_a_start_with_the_latest_keeps_where_the_topic_ended(service: Service, kafka: Brokers) -> None:
    kafka.tell("create", "ended", 2)
    kafka.produce("ended", [{"value": b"{}", "partition": 1}])
    service.made("POST", "/streams", topic_document(kafka, "ended") | {"start": "latest"})
    assert service.store.streams.get("A").source.begins == ((0, 0), (1, 1))


@pytest.mark.parametrize(
    ("more", "code", "pointer"),
    [
        ({"bootstrap": "10.0.0.1:9092"}, "source-not-allowed", "#/source/bootstrap"),
        ({"bootstrap": "http://10.0.0.1"}, "invalid-request", "#/source/bootstrap"),
        ({"topic": "not there"}, "invalid-request", "#/source/topic"),
        ({"topic": "missing"}, "source-not-found", "#/source/topic"),
        ({"key": "nothing"}, "invalid-stream", "#/source/key"),
        ({"sasl": SASL | {"password": {"env": "SLUICE_CATALOG_URL"}}}, "invalid-request", None),
        ({"sasl": SASL | {"password": "hunter2"}}, "invalid-request", None),
        ({"format": "avro"}, "invalid-stream", "#/source/format"),
        ({"registry": {"url": "http://r:1"}}, "invalid-stream", "#/source/registry"),
        (AVRO, "source-not-allowed", "#/source/registry/url"),
        ({"format": "avro", "registry": {"url": "http://me:pw@r"}}, "invalid-request", "#/source/registry"),
        ({"format": "avro", "registry": {"url": "ftp://r"}}, "invalid-request", "#/source/registry/url"),
        (
            {"format": "avro", "registry": {"url": "http://r", "password": {"env": "SLUICE_SECRET_R"}}},
            "invalid-stream",
            "#/source/registry/password",
        ),
    ],
)
def test_what_a_topic_may_not_be(
    service: Service, kafka: Brokers, more: dict[str, Any], code: str, pointer: str | None
) -> None:
    document = topic_document(kafka, "shown")
    answer = service.send("POST", "/streams", document | {"source": document["source"] | more})
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["code"] == code
    assert pointer is None or pointer in str(problem), problem
    assert service.made("GET", "/streams")["items"] == []


def test_a_secret_that_is_not_there_is_told(service: Service, kafka: Brokers) -> None:
    document = topic_document(kafka, "secret", sasl=SASL)
    answer = service.send("POST", "/streams", document)
    assert answer.status_code == 503
    assert 'environment variable "SLUICE_SECRET_KAFKA" is not set' in answer.json()["detail"]


@pytest.mark.parametrize("sink", [TABLE, TOPIC])
def test_a_sink_is_answered_as_it_was_set(service: Service, sink: dict[str, Any]) -> None:
    for name in ("A", "B"):
        service.made("POST", "/streams", stream_document(name))
    service.made("POST", "/queries", {"name": "q", "cql": CQL, "sink": sink})
    found = service.made("GET", "/queries/q")["sink"]
    if sink is TOPIC:
        found["tls"] = {name: value for name, value in found["tls"].items() if value is not None}
    assert found == sink
    server = "server" if sink["type"] == "postgres" else "bootstrap"
    answer = service.send("PATCH", "/queries/q", {"sink": sink | {server: "10.0.0.1:9"}})
    assert answer.status_code == 422
    assert answer.json()["code"] == "invalid-sink"
    assert "SLUICE_SERVERS" in str(answer.json())

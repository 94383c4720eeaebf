"""Brokers behind TLS and SASL: messages come through, and what is wrong is told by name."""

from __future__ import annotations

import time

import pytest
import trustme

from catalog.values.stream import (
    EnvSecret,
    KafkaCluster,
    KafkaMechanism,
    KafkaSasl,
    KafkaSource,
    KafkaTls,
    Stream,
)
from service.errors import KafkaDown
from service.inputs.partitions import Lane, TopicPartition, TopicRange
from service.inputs.sources.topics.topic_reader import read_topic
from service.inputs.sources.topics.topics import Topics
from service.kafka.kafka_client import new_producer
from tests.service.kafka.brokers import Brokers
from tests.service.kafka.secure_front import User, secured
from tests.service.kafka.test_topics import COLUMNS, event

WAIT_S = 120
MECHANISMS: tuple[KafkaMechanism, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OURS, THEIRS = trustme.CA(), trustme.CA()


def tls(ca: trustme.CA) -> KafkaTls:
    return KafkaTls(ca.cert_pem.bytes().decode())


def sasl(mechanism: KafkaMechanism, variable: str) -> KafkaSasl:
    return KafkaSasl(mechanism, "sluice", EnvSecret(variable))


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLUICE_SECRET_RIGHT", "hunter2")
    monkeypatch.setenv("SLUICE_SECRET_WRONG", "hunter3")


def stream_at(cluster: KafkaCluster, topic: str) -> Stream:
    return Stream(1, "S", COLUMNS, "ts", 0, KafkaSource(cluster, topic))


def keys_at(cluster: KafkaCluster, topic: str) -> list[int]:
    """Write three messages with a producer of ours, and read them as the source and a task do."""
    producer = new_producer(cluster, {})
    for k in range(3):
        producer.produce(topic, **event(k, k))
    assert producer.flush(WAIT_S) == 0
    stream, topics = stream_at(cluster, topic), Topics(wait_s=WAIT_S)
    assert topics.look(stream, {}) == [Lane(stream, 0)]
    pieces = topics.pending(Lane(stream, 0), 0, 10)
    topics.close()
    part = TopicPartition(1, 0, None, 3, (TopicRange(0, 0, pieces[-1].end, False),), None)
    return read_topic(stream, part, ["k"], wait_s=WAIT_S).column("k").to_pylist()


def reason_at(cluster: KafkaCluster, wanted: str) -> str:
    """Return why brokers cannot be used, once the reason says what is wanted."""
    stream, topics = stream_at(cluster, "x"), Topics(wait_s=2.0)
    until_s, told = time.monotonic() + WAIT_S, ""
    while wanted not in told:
        assert time.monotonic() < until_s, f"only this is told: {told}"
        with pytest.raises(KafkaDown) as down:
            topics.partitions(stream)
        told = down.value.detail or ""
    topics.close()
    return told


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_messages_come_through_tls_and_sasl(kafka: Brokers, mechanism: KafkaMechanism) -> None:
    topic, user = f"secured-{mechanism}", User(mechanism, "sluice", "hunter2")
    kafka.tell("create", topic, 1)
    with secured(kafka.bootstrap, ca=OURS, user=user) as bootstrap:
        cluster = KafkaCluster(bootstrap, tls(OURS), sasl(mechanism, "SLUICE_SECRET_RIGHT"))
        assert keys_at(cluster, topic) == [0, 1, 2]
    assert user.admitted >= 3, "producer, source and task each say who they are"
    assert not user.refused


def test_a_client_shows_its_certificate(kafka: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka.tell("create", "shown", 1)
    mine = OURS.issue_cert("sluice.example")
    monkeypatch.setenv("SLUICE_SECRET_KEY", mine.private_key_pem.bytes().decode())
    certificate = mine.cert_chain_pems[0].bytes().decode()
    with secured(kafka.bootstrap, ca=THEIRS, client_ca=OURS) as bootstrap:
        authority = THEIRS.cert_pem.bytes().decode()
        shown = KafkaTls(authority, certificate, EnvSecret("SLUICE_SECRET_KEY"))
        assert keys_at(KafkaCluster(bootstrap, shown), "shown") == [0, 1, 2]
        # With TLS 1.3 the server refuses after the handshake, and the library tells of a lost connection.
        reason_at(KafkaCluster(bootstrap, tls(THEIRS)), "Broker transport failure")


@pytest.mark.parametrize(("ca", "host"), [(THEIRS, "127.0.0.1"), (OURS, "elsewhere.example")])
def test_a_certificate_of_others_is_told(kafka: Brokers, ca: trustme.CA, host: str) -> None:
    with secured(kafka.bootstrap, ca=ca, host=host) as bootstrap:
        reason_at(KafkaCluster(bootstrap, tls(OURS)), "certificate verify failed")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told(kafka: Brokers, mechanism: KafkaMechanism) -> None:
    user = User(mechanism, "sluice", "hunter2")
    with secured(kafka.bootstrap, ca=OURS, user=user) as bootstrap:
        cluster = KafkaCluster(bootstrap, tls(OURS), sasl(mechanism, "SLUICE_SECRET_WRONG"))
        told = reason_at(cluster, "SASL authentication error")
    assert user.refused
    assert not user.admitted
    assert "hunter" not in told

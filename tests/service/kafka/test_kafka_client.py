"""Options of the client library: what is encrypted, who connects, and where secrets come from."""

from __future__ import annotations

import pytest

from catalog.documents.codec import decode, encode
from catalog.values.stream import EnvSecret, KafkaCluster, KafkaSasl, KafkaTls
from service.errors import SecretMissing
from service.kafka.kafka_client import _options, new_consumer

CLUSTER = KafkaCluster(
    "b:1,c:2",
    KafkaTls(ca="CA", certificate="CERTIFICATE", key=EnvSecret("SLUICE_SECRET_KEY")),
    KafkaSasl("SCRAM-SHA-256", "u", EnvSecret("SLUICE_SECRET_PASSWORD")),
)


@pytest.mark.parametrize(
    ("cluster", "protocol"),
    [
        (KafkaCluster("b:1"), "plaintext"),
        (KafkaCluster("b:1", tls=KafkaTls()), "ssl"),
        (KafkaCluster("b:1", sasl=CLUSTER.sasl), "sasl_plaintext"),
        (KafkaCluster("b:1", tls=KafkaTls(), sasl=CLUSTER.sasl), "sasl_ssl"),
    ],
)
def test_the_library_takes_every_combination(
    cluster: KafkaCluster, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLUICE_SECRET_PASSWORD", "hunter2")
    assert _options(cluster)["security.protocol"] == protocol
    new_consumer(cluster, {}).close()


def test_secrets_are_looked_up_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SecretMissing, match="SLUICE_SECRET_KEY"):
        _options(CLUSTER)
    monkeypatch.setenv("SLUICE_SECRET_KEY", "private")
    monkeypatch.setenv("SLUICE_SECRET_PASSWORD", "hunter2")
    options = _options(CLUSTER)
    assert options["sasl.password"] == "hunter2"
    assert options["ssl.key.pem"] == "private"
    assert (options["ssl.ca.pem"], options["ssl.certificate.pem"]) == ("CA", "CERTIFICATE")
    assert (options["sasl.mechanism"], options["sasl.username"]) == ("SCRAM-SHA-256", "u")
    stored = encode(CLUSTER)
    assert b"hunter2" not in stored
    assert "hunter2" not in repr(CLUSTER)
    assert decode(KafkaCluster, stored) == CLUSTER

"""Apache Kafka clients: librdkafka consumers and producers; secrets come from the environment.

The library is an optional dependency, so it is imported only where a client is created.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, MutableSequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from catalog.values.stream import EnvSecret, KafkaCluster
from service.errors import KafkaUnsupported, SecretMissing

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Producer

log = logging.getLogger(__name__)

#: Codes of the library (rdkafka.h) for a failed TLS or SASL handshake.
REFUSALS: Final = frozenset({-181, -169})
#: Options of all clients. The back-off is short, so that clients connect within seconds to a broker that is
#: up again.
_COMMON: Final[Mapping[str, str | int | bool]] = {
    "client.id": "sluice",
    "reconnect.backoff.max.ms": 2000,
    "log_level": 2,
    "socket.timeout.ms": 10_000,
    "allow.auto.create.topics": False,
}


def secret_value(secret: EnvSecret) -> str:
    """Return a secret from its environment variable, or from the file that ``<variable>_FILE`` names.

    Raises:
        SecretMissing: Neither variable is set in this process, or the file cannot be read.
    """
    value = os.environ.get(secret.env)
    if value is not None:
        return value
    variable = f"{secret.env}_FILE"
    file = os.environ.get(variable)
    if file is None:
        raise SecretMissing(
            f'environment variable "{secret.env}" is not set',
            hint=f"Set it for the service, or set {variable} to the path of a file with the value. On a "
            "cluster, do so for Spark's driver and executors, too.",
        )
    try:
        return Path(file).read_text(encoding="utf-8").removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SecretMissing(
            f'the file that "{variable}" names cannot be read', detail=f"{reason}."
        ) from error


def new_consumer(
    cluster: KafkaCluster,
    options: Mapping[str, str | int | bool],
    refusals: MutableSequence[str] | None = None,
) -> Consumer:
    """Return a consumer that has no partitions yet and commits nothing to the cluster.

    Args:
        cluster: The brokers.
        options: Further options of the library.
        refusals: List to which the reason of a failed connection is added while messages are polled, such as
            an untrusted certificate. The library's own error would only be the request's timeout, because the
            library retries until then.

    Raises:
        KafkaUnsupported: The library is not installed.
        SecretMissing: A secret is not set.
    """
    fixed = {
        "group.id": "sluice",  # required by the library; no group is joined, since partitions are assigned
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",  # lost messages are reported, never skipped
        "isolation.level": "read_committed",
    }
    told = {} if refusals is None else {"error_cb": partial(_keep_refusal, refusals)}
    consumer: Consumer = _library().Consumer({**_options(cluster), **fixed, **options, **told}, logger=log)
    return consumer


def _keep_refusal(refusals: MutableSequence[str], error: KafkaError) -> None:
    if error.code() in REFUSALS:
        refusals[:] = [error.str()]


def new_producer(cluster: KafkaCluster, options: Mapping[str, str | int | bool]) -> Producer:
    """Return a producer; raises the same errors as `new_consumer`."""
    producer: Producer = _library().Producer({**_options(cluster), **options}, logger=log)
    return producer


def _options(cluster: KafkaCluster) -> dict[str, str | int | bool]:
    options = {**_COMMON, "bootstrap.servers": cluster.bootstrap}
    tls, sasl = cluster.tls, cluster.sasl
    options["security.protocol"] = ("sasl_" if sasl else "") + ("ssl" if tls else "plaintext")
    if tls is not None:
        given = {
            "ssl.ca.pem": tls.ca,
            "ssl.certificate.pem": tls.certificate,
            "ssl.key.pem": None if tls.key is None else secret_value(tls.key),
        }
        options |= {name: value for name, value in given.items() if value is not None}
    if sasl is not None:
        options |= {
            "sasl.mechanism": sasl.mechanism,
            "sasl.username": sasl.username,
            "sasl.password": secret_value(sasl.password),
        }
    return options


def _library() -> ModuleType:
    try:
        import confluent_kafka
    except ImportError as error:
        raise KafkaUnsupported(
            "Kafka needs a client library that is not installed",
            hint='Install Sluice with its extra "kafka": pip install "sluice[kafka]".',
        ) from error
    return confluent_kafka

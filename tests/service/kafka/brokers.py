"""A cluster of librdkafka's mock brokers in a process of its own, told on its input what to do.

    create <topic> <partitions>    drop <topic> <partition> <offset>    down <broker>    up <broker>

``drop`` lets the messages before an offset go, as retention does. The brokers speak Kafka's
protocol over TCP.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from confluent_kafka import Producer

from catalog.values.stream import KafkaCluster


class Brokers:
    """The cluster, seen from the tests."""

    def __init__(self, process: Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self.bootstrap = process.stdout.readline().strip()
        self.cluster = KafkaCluster(self.bootstrap)

    def tell(self, *words: object) -> None:
        """Give an order and wait until it is done."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        assert answer == "0", f"{words}: error {answer}"

    def produce(self, topic: str, messages: Sequence[dict[str, Any]]) -> None:
        """Write messages, given as arguments of ``Producer.produce``, and wait for the brokers."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, "log_level": 0})
        failed: list[object] = []
        for message in messages:
            producer.produce(topic, on_delivery=lambda error, _: error and failed.append(error), **message)
            producer.poll(0)
        assert producer.flush(30) == 0
        assert not failed


@contextmanager
def brokers() -> Iterator[Brokers]:
    with Popen([sys.executable, __file__], stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            yield Brokers(process)
        finally:
            process.communicate()  # its input ends, and so does it


def _library() -> ctypes.CDLL:
    import confluent_kafka

    beside = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    (path,) = beside.glob("librdkafka-*.so*")
    return ctypes.CDLL(str(path))


def _serve() -> None:
    library = _library()
    new, cluster_new = library.rd_kafka_new, library.rd_kafka_mock_cluster_new
    new.restype = cluster_new.restype = ctypes.c_void_p
    new.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    cluster_new.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    library.rd_kafka_mock_cluster_bootstraps.argtypes = [ctypes.c_void_p]
    create = library.rd_kafka_mock_topic_create
    create.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int]
    drop = library.rd_kafka_mock_partition_delete_records
    drop.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int64]
    down, up = library.rd_kafka_mock_broker_set_down, library.rd_kafka_mock_broker_set_up
    down.argtypes = up.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    error = ctypes.create_string_buffer(512)
    handle = new(0, None, error, 512)
    cluster = cluster_new(handle, 3)
    print(library.rd_kafka_mock_cluster_bootstraps(cluster).decode(), flush=True)
    for line in sys.stdin:
        order, *words = line.split()
        match order:
            case "create":
                answer = create(cluster, words[0].encode(), int(words[1]), 1)
            case "drop":
                answer = drop(cluster, words[0].encode(), int(words[1]), int(words[2]))
            case "down":
                answer = down(cluster, int(words[0]))
            case "up":
                answer = up(cluster, int(words[0]))
            case _:
                answer = -1
        print(answer, flush=True)


if __name__ == "__main__":
    _serve()

"""Lifecycle tests with catalog and posted events on PostgreSQL, and with topics of Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.api.running_service import WAIT_S, RunningService, default_settings, free_port
from tests.api.test_lifecycle import (
    test_a_broken_file_is_set_aside_and_the_rest_goes_on as test_a_broken_file,
)
from tests.api.test_lifecycle import (
    test_a_change_made_for_another_plan_version_is_refused as test_another_plan_version,
)
from tests.api.test_lifecycle import (
    test_a_mutation_repeated_under_its_key_is_done_once as test_a_repeated_mutation,
)
from tests.api.test_lifecycle import (
    test_a_paused_engine_goes_on_where_it_stopped as test_a_paused_engine,
)
from tests.api.test_lifecycle import (
    test_collections_come_in_pages_by_name as test_pages,
)
from tests.api.test_lifecycle import (
    test_queries_come_and_go_while_one_spark_query_runs as test_queries_come_and_go,
)
from tests.postgres import PostgresServer
from tests.service.kafka.brokers import Brokers, brokers
from tests.service.kafka.test_topic_sink import messages_in
from tests.service.kafka.test_topics import event
from tests.waiting import until

pytestmark = pytest.mark.spark

__all__ = [
    "test_a_broken_file",
    "test_a_paused_engine",
    "test_a_repeated_mutation",
    "test_another_plan_version",
    "test_pages",
    "test_queries_come_and_go",
]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Brokers]:
    with brokers() as found:
        yield found


@pytest.fixture(scope="module")
def service(
    postgres: PostgresServer, kafka: Brokers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningService]:
    directory = tmp_path_factory.mktemp("on-postgres")
    log = directory / "log.txt"
    settings = default_settings(log) | {
        "SLUICE_CATALOG_URL": postgres.url(postgres.create()),
        "SLUICE_SERVERS": kafka.bootstrap,
    }
    with RunningService(directory / "data", log, free_port(), settings=settings) as running:
        assert not (running.data_dir / "catalog.db").exists()
        assert not (running.data_dir / "events.db").exists()
        yield running


def test_two_topics_are_joined_into_a_third_one(service: RunningService, kafka: Brokers) -> None:
    for name, partitions in (("left", 2), ("right", 1), ("pairs", 2)):
        kafka.tell("create", name, partitions)
    for n in range(20):
        kafka.produce("left", [event(n * 1_000_000, n, n % 2)])
        kafka.produce("right", [event(n * 1_000_000, n)])
    kafka.produce("right", [{"value": b"no event", "partition": 0}])
    for name in ("left", "right"):
        source = {"type": "kafka", "bootstrap": kafka.bootstrap, "topic": name, "on_bad": "dead-letter"}
        body = {"name": name, "columns": {"ts": "timestamp", "k": "bigint"}, "event_time": "ts"}
        service.ok("POST", "/streams", 201, json=body | {"lateness": "1m", "source": source})
    cql = (
        'SELECT a.k AS k, b.k AS other FROM "left" [RANGE 1 SECOND] AS a, "right" [RANGE 1 SECOND] AS b '
        "WHERE a.k = b.k"
    )
    sink = {"type": "kafka", "bootstrap": kafka.bootstrap, "topic": "pairs", "key": "k"}
    query = {"name": "of_topics", "cql": cql, "sink": sink}
    service.ok("POST", f"/queries?wait={WAIT_S}", 201, json=query)

    def found() -> list[tuple[int, int]]:
        rows = [json.loads(message.value()) for message in messages_in(kafka, "pairs")]
        return sorted((row["k"], row["other"]) for row in rows)

    until(lambda: len(found()) >= 20, found)
    assert found() == [(n, n) for n in range(20)]

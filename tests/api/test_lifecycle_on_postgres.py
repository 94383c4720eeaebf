"""Lifecycle tests of streams and queries, with catalog and posted events on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.api.running_service import RunningService, default_settings, free_port
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
def service(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    directory = tmp_path_factory.mktemp("on-postgres")
    log = directory / "log.txt"
    settings = default_settings(log) | {"SLUICE_CATALOG_URL": postgres.url(postgres.create())}
    with RunningService(directory / "data", log, free_port(), settings=settings) as running:
        assert not (running.data_dir / "catalog.db").exists()
        assert not (running.data_dir / "events.db").exists()
        yield running

"""A cluster whose hosts share nothing but the application and the checkpoint's mount."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.sluice_cluster import cluster
from tests.crash.posting import Client, add_streams_and_query, expected, results, wait_for_rows


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_hosts_that_share_only_the_checkpoint_give_the_rows_of_duckdb(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        (api,) = made.apis
        add_streams_and_query(api)
        client = Client(api.root, pause_s=0.1)
        client.start()
        wait_for_rows(api, 500)
        client.finish(20)
        wait_for_rows(api, sum(map(len, client.sent.values())))
        assert sorted(results(api)) == expected(client.sent), made.told()

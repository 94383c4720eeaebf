"""A cluster whose hosts share nothing but the application and the checkpoint's mount."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from tests.api.running_service import RunningService
from tests.cluster.sluice_cluster import PATIENCE_S, Cluster, cluster, wait_until
from tests.crash.posting import Client, add_streams_and_query, expected, results

#: Rows that have been read once the cluster works.
FIRST_ROWS = 500


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_hosts_that_share_only_the_checkpoint_give_the_rows_of_duckdb(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        (api,) = made.apis
        add_streams_and_query(api, wait_s=0)
        client = Client(api.root, pause_s=0.1)
        client.start()
        read_on(made, api, client, "the cluster has begun")
        client.finish(20)
        read_on(made, api, client, "the client has stopped")
        assert sorted(results(api)) == expected(client.sent), made.told()


def read_on(made: Cluster, api: RunningService, client: Client, what: str) -> None:
    """Wait until all rows that were sent by now are committed, however slow the machine is."""
    began_s, rows = time.monotonic(), max(sum(map(len, client.sent.values())), FIRST_ROWS)

    def are_read() -> bool:
        try:
            answer = api.http.get("/statistics", timeout=30)
        except httpx.TransportError:
            return False
        return answer.is_success and answer.json()["input_rows"] >= rows

    wait_until(f"{what}: {rows} rows are read", are_read, made.told, 2 * PATIENCE_S)
    print(f"{what}: read on after {time.monotonic() - began_s:.0f} s", flush=True)

"""The job on several worker JVMs: more buckets and more processes give the same rows.

Spark's ``local-cluster`` starts a driver and two executors as JVMs of their own, each with its own Python
daemon and workers: nothing is shared between them but files. Every run is compared with DuckDB row by row, so
that runs of different numbers of buckets are compared with each other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.store.store import Store
from tests.oracle import Oracle
from tests.s3 import S3Server
from tests.sluice_run import assert_equals_oracle, link_home, run
from tests.workloads import Size, make_workload

#: Of the seeds of ``test_differential``: lateness and backfill change the answers of most of its queries.
SEED = 83
SIZE = Size(rows=500, queries=8, steps=4)
#: Two executors of one core.
MASTER = "local-cluster[2,1,1024]"


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.parametrize(
    ("buckets", "partitions"),
    [pytest.param(2, 2, marks=pytest.mark.slow), (4, 2), pytest.param(8, 4, marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("kept", [pytest.param("directory", marks=pytest.mark.slow), "s3"])
def test_two_executors_give_the_rows_of_duckdb(
    buckets: int, partitions: int, kept: str, s3: S3Server, tmp_path: Path
) -> None:
    spec, files = make_workload(SEED, tmp_path, SIZE)
    environment = {
        "SLUICE_SPARK_MASTER": MASTER,
        "SLUICE_CORES": str(partitions),
        # Executors of a local cluster work below Spark's home.
        "SPARK_HOME": str(link_home(tmp_path / "spark")),
    }

    if kept == "s3":
        environment |= {
            "SLUICE_STORAGE_URL": s3.new_url(),
            "SLUICE_STORAGE_CACHE_DIR": str(tmp_path / "cache"),
        }

    outcome = run(tmp_path / "WORKLOAD.yaml", tmp_path / "out", buckets=buckets, environment=environment)

    assert_equals_oracle(outcome, tmp_path / "out", Oracle(spec, files), "per-query")
    with Store.open(f"sqlite:///{tmp_path / 'out' / '_sluice' / 'catalog.db'}") as store:
        manifests = store.batches.manifests(0, 1000)
        facts = store.settings.get("checkpoint")
    assert isinstance(facts, dict)
    assert facts["partitions"] == partitions
    assert {m.buckets.buckets for m in manifests if m.buckets is not None} == {buckets}
    executors = {path.name for path in (tmp_path / "spark" / "work").glob("app-*/*")}
    assert executors == {"0", "1"}

"""Runs that are moved in mid-stream, to more buckets and back, give the rows that DuckDB gives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.oracle import Oracle
from tests.s3 import S3Server
from tests.sluice_run import assert_equals_oracle, run, sluice
from tests.workloads import Size, make_workload

SIZE = Size(rows=500, queries=8, steps=4)
#: Between manifest and commit log, and before a manifest.
DEATHS = ("after-result-commit@2", "before-result-commit@4")


@pytest.mark.spark
@pytest.mark.timeout(1500)
@pytest.mark.slow
@pytest.mark.parametrize("moves", [(8,), (8, 2)], ids=str)
def test_a_run_that_grows_into_s3_and_comes_back_gives_the_rows_of_duckdb(
    moves: tuple[int, ...], s3: S3Server, tmp_path: Path
) -> None:
    seed = int(os.environ.get("MOVED_SEED", "83"))
    print(f"seed {seed}: MOVED_SEED={seed} gives this run again")
    spec, files = make_workload(seed, tmp_path, SIZE)
    workload = tmp_path / "WORKLOAD.yaml"
    here = {"SLUICE_STORAGE_CACHE_DIR": str(tmp_path / "cache")}
    out, environment, buckets = tmp_path / "0", here, 2

    for number, more in enumerate(moves):
        killed = run(
            workload, out, buckets=buckets, environment=environment | {"SLUICE_FAILPOINT": DEATHS[number]}
        )
        assert killed.returncode < 0, killed.stderr
        url = s3.new_url() if environment == here else None
        following = tmp_path / str(number + 1)
        moved = sluice(
            *("move", following / "_sluice", "--data-dir", out / "_sluice", "--buckets", str(more)),
            *(() if url is None else ("--to", url)),
            environment=environment,
            timeout_s=600,
        )
        assert moved.returncode == 0, moved.stderr
        assert f"in {more} buckets" in moved.stdout
        out, buckets = following, more
        environment = here if url is None else here | {"SLUICE_STORAGE_URL": url}
    outcome = run(workload, out, buckets=buckets, environment=environment)

    assert_equals_oracle(outcome, out, Oracle(spec, files), "per-query")
    refused = run(workload, tmp_path / "0", environment=here)
    assert "was moved to" in refused.stderr

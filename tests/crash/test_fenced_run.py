"""A run whose commit is refused ends with the reason; what Spark did without a commit is done again."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.store.store import Store
from tests.crash.killing import SIZE, wait_for_commit
from tests.epochs import begin_epoch
from tests.oracle import Oracle
from tests.sluice_run import assert_equals_oracle, finish, run, start
from tests.workloads import make_workload


@pytest.mark.slow
@pytest.mark.spark
def test_a_run_that_another_engine_has_fenced_out_ends_and_is_gone_on_with(tmp_path: Path) -> None:
    spec, files = make_workload(6, tmp_path, SIZE)
    workload, out = tmp_path / "WORKLOAD.yaml", tmp_path / "out"
    first = start(workload, out)
    wait_for_commit(first, out, 2)
    with Store.open(f"sqlite:///{out / '_sluice' / 'catalog.db'}", migrate=False) as store:
        epoch = begin_epoch(store)
        fenced = finish(first)
        last = store.batches.last_manifest()
    assert last is not None
    assert fenced.returncode == 1
    assert f"batch {last.batch + 1} comes from epoch {epoch - 1}, the current one is {epoch}" in fenced.stderr
    commits = {
        int(path.name) for path in (out / "_sluice/checkpoint/commits").iterdir() if path.name.isdigit()
    }
    assert max(commits) <= last.batch, "Spark counts a batch as done whose results nobody can see"
    assert_equals_oracle(run(workload, out), out, Oracle(spec, files), "per-query")

"""CHAIN with the files of its state, without Spark: what a bucket has stored, and what a replay finds.

Every batch runs twice, as if the first attempt's process had died before Spark committed the state: the
second one starts from the manifest before, with nothing in memory. Plans change all the while. Rows come to
one pipeline in files and to the other in packets, and the buckets say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from operators.bucket.state.manifest import dropped_before_ids, dropped_ids, segment_ids, stored_plan_version
from operators.bucket.state.store_segments import SegmentIds
from service.commit.reporting.bucket_report import BucketReport
from service.job.chain_processor import forget_checkpoint
from tests.bench.migration.carrying import run_batch, scheduled
from tests.bench.migration.load import Load
from tests.pipeline import Pipeline

LOAD = Load().sized(longest_s=1.2, queries=8)
BUCKETS = 2
#: Bytes of rows from which on they come in files.
ALL, NONE = 0, 1 << 40
#: What a report says of the bucket's work; names of files and times are an attempt's own.
SAID = ("batch", "plan_version", "streams", "slices", "filters", "keys", "routes")


@dataclass(slots=True)
class Replayed(Pipeline):
    """Runs every batch of every bucket twice.

    Attributes:
        dropped: Files that the last batch of each bucket dropped.
    """

    dropped: dict[int, set[str]] = field(default_factory=dict)

    def join(self, bucket: int, packets: Sequence[bytes]) -> BucketReport:
        handle = self._handles[bucket]
        before = handle.getValueState("manifest", "").get()
        first = Pipeline.join(self, bucket, packets)
        state = handle.getValueState("manifest", "")
        after, files = state.get(), self.files(bucket)
        if before is not None:
            state.update(before)
        else:
            handle.value_states.clear()
        forget_checkpoint(self._options.checkpoint_id)
        second = Pipeline.join(self, bucket, packets)
        assert _said(second) == _said(first)
        assert handle.getValueState("manifest", "").get() == after
        assert self.files(bucket) == files
        for file in first.files:
            (self.directory / file.path).unlink()
        assert after is not None
        self._check(bucket, after[0], set(files))
        return second

    def files(self, bucket: int) -> dict[str, bytes]:
        """Return what a bucket has stored and what was sent to it, by name."""
        prefix = SegmentIds(self._options.checkpoint_id, bucket, 0).prefix
        return {
            path.name: path.read_bytes()
            for path in Path(self._options.segments_dir).iterdir()
            if path.name.startswith(prefix) or fnmatch(path.name, f"rows.*.*.{bucket}.*")
        }

    def _check(self, bucket: int, manifest: bytes, files: set[str]) -> None:
        """What the manifest names is there, what the last two batches dropped, and nothing else."""
        ids = SegmentIds(self._options.checkpoint_id, bucket, self.batch)
        held = segment_ids(manifest) | {ids.plan(stored_plan_version(manifest))}
        dropped, before = set(dropped_ids(manifest)), set(dropped_before_ids(manifest))
        assert files == held | dropped | before
        assert held.isdisjoint(dropped | before)
        assert before == self.dropped.get(bucket, set())
        self.dropped[bucket] = dropped


def _said(report: BucketReport) -> dict[str, Any]:
    return {name: getattr(report, name) for name in SAID} | {"rows": [file.rows for file in report.files]}


@pytest.mark.parametrize("in_files", [(ALL, NONE), pytest.param((NONE, ALL), marks=pytest.mark.slow)])
def test_a_batch_that_runs_again_finds_all_it_needs_and_leaves_the_same(
    in_files: tuple[int, int], tmp_path: Path
) -> None:
    changes, at, batches = scheduled(LOAD, gap=2)
    carries = {number: step.plan for number, step in zip(at, changes, strict=True)}
    directories = [tmp_path / name for name in ("twice", "once")]
    for directory in directories:
        directory.mkdir()
    twice = Replayed(carries[0], BUCKETS, directories[0], in_files[0])
    once = Pipeline(carries[0], BUCKETS, directories[1], in_files[1])
    results, dropped, sent = 0, 0, 0
    for number in range(batches):
        ran = [run_batch(pipeline, LOAD, carries.get(number)) for pipeline in (twice, once)]
        assert len({(batch.state_rows, batch.segments, batch.pairs) for batch in ran}) == 1
        results += ran[0].pairs
        dropped += sum(map(len, twice.dropped.values()))
        sent += sum(name.startswith("rows.") for names in twice.dropped.values() for name in names)
    for pipeline in (twice, once):
        pipeline.close()
    assert results > 0
    assert dropped > batches
    assert (sent > batches) == (in_files[0] == ALL)

"""What the batches of a job ask of an object store: uploads before their reports, no listing and no copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from operators.bucket.state.manifest import segment_ids
from operators.segments.files.segment_files import SegmentFiles
from operators.storage import object_folder
from operators.storage.folder import stored
from operators.storage.object_folder import ObjectFolder
from service.commit.commit import check_seen
from service.commit.reporting.bucket_report import BucketReport
from service.job import packing
from service.results.files.result_files import ResultWriter
from tests.bench.migration.carrying import run_batch, scheduled
from tests.bench.migration.load import Load
from tests.pipeline import Pipeline
from tests.s3_front import Front, front

LOAD = Load().sized(longest_s=1.2, queries=8)
CACHE_BYTES = 1 << 30
BATCHES = 4


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:
    with front(monkeypatch) as found:
        object_folder._store.cache_clear()
        yield found
    object_folder._store.cache_clear()


class Apart(Pipeline):
    """A job whose segments and results are in an object store; its engine is another machine."""

    files = 0

    def keep_in(self, url: str, engine: Path) -> None:
        segments = ObjectFolder(Path(self._options.segments_dir), f"{url}/segments", CACHE_BYTES)
        results = ObjectFolder(self.directory, f"{url}/results", CACHE_BYTES)
        self.segments = SegmentFiles(segments)
        self._row_files = packing.RowFiles(self.segments, 1 << 40)  # rows come in packets
        self._options = replace(self._options, segments_dir=segments, writer=ResultWriter(results, None, 1))
        self.seen = (replace(segments, directory=engine), replace(results, directory=engine))

    def join(self, bucket: int, packets: list[bytes]) -> BucketReport:  # type: ignore[override]
        report = Pipeline.join(self, bucket, packets)
        segments, results = self.seen
        assert report.etags.keys() == {file.path for file in report.files}
        check_seen(results, report.files, report.etags)
        manifest = self._handles[bucket].getValueState("manifest", "").get()
        held = segment_ids(manifest[0])
        assert stored(segments, held).keys() == held
        self.files += len(report.files)
        return report


def test_a_batch_uploads_before_it_reports_and_neither_lists_nor_copies(store: Front, tmp_path: Path) -> None:
    changes, at, _ = scheduled(LOAD, gap=2)
    carries = {number: step.plan for number, step in zip(at, changes, strict=True)}
    job = Apart(carries[0], 2, tmp_path)
    job.keep_in(store.url, tmp_path / "engine")
    for number in range(BATCHES):
        run_batch(job, LOAD, carries.get(number))
    job.close()
    assert job.files >= BATCHES
    assert store.asked["PUT"] > job.files
    assert store.asked.keys() <= {"PUT", "GET", "HEAD", "POST", "DELETE"}

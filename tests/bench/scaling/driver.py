"""What grows on the driver, where one core must do it: a report per bucket, a partition per piece of input.

Spark is not in it. The reports are those of a batch of the load, as many of them as there would be buckets;
the partitions are those of a catalog with as many files.
"""

from __future__ import annotations

import itertools
import pickle
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.store.store import Store
from catalog.values.batch import ResultFile
from catalog.values.plan import Plan
from catalog.values.stream import FilesSource, Stream
from service.calibrate.runs import plans
from service.commit.bucket_report import BucketReport, decode_report, encode_report
from service.commit.commit import BatchCommitter
from service.inputs.sources.files import list_files
from service.job.source import SluiceReader
from tests.bench.scaling.load import Point, workload
from tests.pipeline import Pipeline
from tests.service.spark_logs import log_of

#: Buckets and partitions that are tried: those of 1,000 cores are 4,000 and 1,000.
BUCKETS = (4, 64, 512, 4096)
PARTITIONS = (4, 64, 512)
REPEATS = 3
#: Buckets whose reports are repeated; rows that give each of them results of many routes.
_REPORTING, _ROWS = 8, 40_000
_SECOND_US = 1_000_000


@dataclass(frozen=True, slots=True)
class Serial:
    """CPU time of the driver for a batch.

    Attributes:
        count: Buckets, or partitions.
        cpu_s: Seconds, a median.
        bytes: What the buckets report, or the partitions come to, in bytes.
    """

    count: int
    cpu_s: float
    bytes: int


def measure_reports(counts: Sequence[int] = BUCKETS) -> list[Serial]:
    """Measure the commit of batches whose buckets report."""
    few, plan = _reports()
    measured = []
    for count in counts:
        with (
            tempfile.TemporaryDirectory(prefix="sluice-scaling-") as root,
            Store.open(f"sqlite:///{root}/catalog.db") as store,
        ):
            store.control_log.append(plan=plan)
            epoch = store.epochs.begin("bench")
            log = log_of(Path(root), REPEATS + 1)
            committer = BatchCommitter(store, Path(root), Path(root), epoch, f"{root}/lock", log)
            times, size = [], 0
            for batch in range(REPEATS + 1):
                texts = [_text(few[n % len(few)], batch, n) for n in range(count)]
                size = sum(map(len, texts))
                began_s = time.process_time()
                committer([decode_report(text) for text in texts])
                times.append(time.process_time() - began_s)
            measured.append(Serial(count, statistics.median(times[1:]), size))
    return measured


def _text(report: BucketReport, batch: int, bucket: int) -> bytes:
    family = report.slices[0].family
    file = ResultFile(f"batch={batch}/{bucket:05}-0123456789abcdef.parquet", family, 1000)
    return encode_report(replace(report, batch=batch, files=(file,)))


def _reports() -> tuple[Sequence[BucketReport], Plan]:
    """Return what the buckets of the load's first batch report, and its plan."""
    load = workload(Point(_ROWS, _REPORTING, matches=1.0))
    (plan,) = plans(load, ["mem-opt"]).values()
    with tempfile.TemporaryDirectory(prefix="sluice-scaling-") as root:
        job = Pipeline(plan, _REPORTING, Path(root))
        ((batch,),) = itertools.islice(load.batches(Path(root), at_once=1), 1)
        reports = job.step(batch.pieces).reports
        job.close()
    return reports, plan


def measure_partitions(counts: Sequence[int] = PARTITIONS) -> list[Serial]:
    """Measure how long the source takes to admit a batch and to say what its readers read."""
    return [_partitions(count) for count in counts]


def _partitions(count: int) -> Serial:
    load = workload(Point(2_000))
    with tempfile.TemporaryDirectory(prefix="sluice-scaling-") as root:
        streams = [_with_files(stream, Path(root), count // 2) for stream in load.streams.values()]
        url = f"sqlite:///{root}/catalog.db"
        with Store.open(url) as store:
            for stream in streams:
                list_files(store, store.streams.add(stream))
            (plan,) = plans(load, ["mem-opt"]).values()
            store.control_log.append(plan=replace(plan, streams=tuple(streams)))
        options = {
            "catalog_url": url,
            "events_url": f"sqlite:///{root}/events.db",
            "data_dir": str(root),
            "engine_lock": f"{root}/lock",
            "epoch": "0",
            "bucket_keys": ",".join(map(str, range(64))),
            "max_rows": "1000000000",
            "rows_per_partition": "1",
        }
        reader = SluiceReader(options)
        reader.prepareForTriggerAvailableNow()
        start, times, size = reader.initialOffset(), [], 0
        for _ in range(REPEATS + 1):
            began_s = time.process_time()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            pickled = [pickle.dumps(piece) for piece in reader.partitions(start, end)]
            times.append(time.process_time() - began_s)
            size = sum(map(len, pickled))
            assert len(pickled) == count
    return Serial(count, statistics.median(times[1:]), size)


def _with_files(stream: Stream, root: Path, files: int) -> Stream:
    """Give a stream so many files of one row, all of which are a batch."""
    directory = root / stream.name
    directory.mkdir()
    for number in range(files):
        columns = {
            c.name: pa.array([number * _SECOND_US] if c.type == "timestamp" else [number]).cast(
                {"timestamp": pa.timestamp("us"), "bigint": pa.int64(), "double": pa.float64()}[c.type]
            )
            for c in stream.columns
        }
        pq.write_table(pa.table(columns), directory / f"{number:05}.parquet")
    return replace(stream, source=FilesSource("parquet", str(directory), files))

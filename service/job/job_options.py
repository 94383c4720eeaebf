"""Options of the one Spark job, made from the service's settings and data directory."""

from __future__ import annotations

import json

from operators.segments.files.segment_files import Fence
from operators.storage.folder import directory_here, folder_text
from service.checkpoint.spark_log import SparkLog
from service.commit.reporting.reports import ReportAddress
from service.config.data_dir import DataDir
from service.config.settings import Settings
from service.job.admission.packed_bytes import HEAP_PART
from service.job.chain_processor import ChainOptions
from service.job.job import JobOptions
from service.results.files.result_files import ResultWriter


def job_options(
    settings: Settings,
    data_dir: DataDir,
    *,
    checkpoint_id: str,
    bucket_keys: tuple[int, ...],
    partitions: int,
    epoch: int,
    reports: ReportAddress,
    bounded: bool,
    sealed: bool,
) -> JobOptions:
    """Return the options of a job.

    Args:
        settings: Settings.
        data_dir: Data directory.
        checkpoint_id: Id of the checkpoint.
        bucket_keys: Spark's key of each bucket.
        partitions: Number of shuffle partitions.
        epoch: Fencing epoch of the engine.
        reports: Address at which the engine accepts the buckets' reports.
        bounded: Whether the job ends once all available input is processed.
        sealed: Whether all segments of the checkpoint have a seal.
    """
    begin = SparkLog(data_dir.checkpoint).begin()
    source = {
        "catalog_url": settings.storage.effective_catalog_url,
        "events_url": data_dir.events_url(settings.storage.catalog_url),
        "data_dir": str(data_dir.root),
        "bucket_keys": ",".join(str(key) for key in bucket_keys),
        "max_rows": str(settings.batches.max_rows),
        "target_batch_s": str(settings.batches.target_s),
        "batch_bytes": str(int(settings.spark.driver_memory_bytes * HEAP_PART)),
        "rows_per_partition": _text(settings.batches.rows_per_partition),
        "tasks": str(settings.spark.cores),
        # A bounded run ends when no input is left, so its input must not wait for disk space.
        "min_free_mb": "0" if bounded else _text(settings.ingest.min_free_mb),
        "engine_lock": str(data_dir.engine_lock),
        "epoch": str(epoch),
        "begin": "" if begin is None else json.dumps(begin),
        "fence": str(data_dir.fence),
        "dead_letters": folder_text(data_dir.dead_letters),
        # On a cluster, workers do not share a local directory, so Spark's shuffle sends rows between them.
        "rows_dir": str(directory_here(data_dir.segments)) if settings.spark.one_machine else "",
        "rows_file_bytes": str(settings.batches.rows_file_kb << 10),
    }
    late_dir = data_dir.late if settings.results.keep_late_rows else None
    chain = ChainOptions(
        checkpoint_id=checkpoint_id,
        bucket_keys=bucket_keys,
        segments_dir=data_dir.segments,
        cache_bytes=settings.state.cache_mb << 20,
        engine_lock=str(data_dir.engine_lock),
        writer=ResultWriter(data_dir.results, late_dir, epoch),
        fence=Fence(data_dir.fence, epoch),
        sealed=sealed,
        begins=None if begin is None else begin["batch"],
    )
    return JobOptions(
        checkpoint=str(data_dir.checkpoint),
        source=source,
        chain=chain,
        reports=reports,
        partitions=partitions,
        bounded=bounded,
    )


def _text(value: int | None) -> str:
    return "" if value is None else str(value)

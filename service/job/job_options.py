"""From the settings of a service and its data directory to the options of the one job."""

from __future__ import annotations

from operators.segments.segment_files import Fence
from service.commit.reports import ReportAddress
from service.config.data_dir import DataDir
from service.config.settings import Settings
from service.inputs.packed_bytes import HEAP_PART
from service.job.chain_processor import ChainOptions
from service.job.job import JobOptions
from service.results.result_files import ResultWriter


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
        data_dir: Where everything is.
        checkpoint_id: Id of the checkpoint.
        bucket_keys: Spark's key of each bucket.
        partitions: Shuffle partitions.
        epoch: Fencing epoch of the engine.
        reports: Where the engine takes the buckets' reports.
        bounded: Whether the job ends once everything available is processed.
        sealed: Whether all segments of the checkpoint have a seal.
    """
    source = {
        "catalog_url": settings.storage.effective_catalog_url,
        "events_db": str(data_dir.events_db),
        "bucket_keys": ",".join(str(key) for key in bucket_keys),
        "max_rows": str(settings.batches.max_rows),
        "target_batch_s": str(settings.batches.target_s),
        "batch_bytes": str(int(settings.spark.driver_memory_bytes * HEAP_PART)),
        "rows_per_partition": str(settings.batches.rows_per_partition or ""),
        "tasks": str(settings.spark.cores),
        "engine_lock": str(data_dir.engine_lock),
        "epoch": str(epoch),
        "fence": str(data_dir.fence),
        "dead_letters": str(data_dir.dead_letters),
        # On a cluster the directory is another machine's: rows had better go from worker to worker.
        "rows_dir": str(data_dir.segments) if settings.spark.one_machine else "",
        "rows_file_bytes": str(settings.batches.rows_file_kb << 10),
    }
    late_dir = str(data_dir.late) if settings.results.keep_late_rows else None
    chain = ChainOptions(
        checkpoint_id=checkpoint_id,
        bucket_keys=bucket_keys,
        segments_dir=str(data_dir.segments),
        cache_bytes=settings.state.cache_mb << 20,
        engine_lock=str(data_dir.engine_lock),
        writer=ResultWriter(str(data_dir.results), late_dir, epoch),
        fence=Fence(data_dir.fence, epoch),
        sealed=sealed,
    )
    return JobOptions(
        checkpoint=str(data_dir.checkpoint),
        source=source,
        chain=chain,
        reports=reports,
        partitions=partitions,
        bounded=bounded,
    )

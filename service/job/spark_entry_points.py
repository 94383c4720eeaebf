"""Source and chain as Spark sees them while it plans: entry points that load the rest when there is work.

Spark asks fresh Python processes what a source gives, how it is read and which state an operator keeps. Each
unpickles our object, answers and goes:

    create_data_source -> source runner -> transform_with_state_driver_worker -> plan_data_source_read

one after the other, before the first row. With the source or the chain in the pickle each of them imports
pandas, numba and SQLAlchemy for it: 1.7 to 2.3 s of CPU time. The workers that do the work have all of it
from the process they are forked from (``workers.fork_server``). Where there is no such process, on another
machine than the engine's, this is what keeps the planning processes quick.
"""

from __future__ import annotations

import importlib
import pickle
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from service.commit.reports import ReportAddress, send_report
from service.job.chain_state import open_state

FORMAT_NAME = "sluice"
SCHEMA = "bucket int, packet binary"
#: Of the rows that the chain gives to Spark, of which there are none.
OUTPUT_SCHEMA = "none boolean"

_READER = "service.job.source"
_PACKING = "service.job.packing"
_PROCESSOR = "service.job.chain_processor"

Offset = dict[str, int]


class SourceEntryPoint(DataSource):
    """The data source as Spark knows it."""

    @classmethod
    def name(cls) -> str:
        """Return the format name."""
        return FORMAT_NAME

    def schema(self) -> str:
        """Return the columns: bucket key and a packet of a payload."""
        return SCHEMA

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        """Return the reader."""
        return ReaderEntryPoint(dict(self.options))


class ReaderEntryPoint(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader: ``service.job.source.SluiceReader``, in the readers' tasks ``service.job.packing``.

    Args:
        options: Options of the reader.
    """

    def __init__(self, options: dict[str, str]) -> None:
        self._options = options

    def __getstate__(self) -> dict[str, Any]:
        # Whoever unpickles it loads the reader if there is something to read.
        return {"_options": self._options}

    @cached_property
    def _reader(self) -> Any:
        return importlib.import_module(_READER).SluiceReader(self._options)

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the offset before the first batch."""
        offset: Offset = self._reader.initialOffset()
        return offset

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a batch may take."""
        limit: ReadLimit = self._reader.getDefaultReadLimit()
        return limit

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Get ready for a run that ends with what is there now."""
        self._reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """Return the end of the next batch."""
        offset: Offset = self._reader.latestOffset(start, limit)
        return offset

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return what the readers of one batch read."""
        pieces: list[InputPartition] = self._reader.partitions(start, end)
        return pieces

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one partition."""
        keys = [int(key) for key in self._options["bucket_keys"].split(",")]
        packing = importlib.import_module(_PACKING)
        rows: Iterator[Any] = packing.read(partition, keys, packing.RowFiles.of(self._options))
        return rows


class ChainEntryPoint(StatefulProcessor):
    """The chain of a bucket: ``service.job.chain_processor.ChainProcessor``.

    Args:
        options: Its ``ChainOptions``.
        reports: Where the engine takes reports.
    """

    def __init__(self, options: Any, reports: ReportAddress) -> None:
        # In a pickle of their own, for their classes are the chain's.
        self._options = pickle.dumps(options)
        self._reports = reports

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the bucket's state."""
        self._state = open_state(handle)

    @cached_property
    def _processor(self) -> Any:
        return importlib.import_module(_PROCESSOR).ChainProcessor(pickle.loads(self._options), self._state)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Any]:
        """Process the payloads of one batch for one bucket and report to the engine; Spark gets no rows."""
        report, routes = self._processor.process(int(key[0]), rows)
        send_report(self._reports, report, routes)
        return iter(())

    def close(self) -> None:
        """Nothing to close: what lives longer than a batch belongs to the worker."""

"""ROUTE's last step: joined pairs become Parquet files that nobody sees before a manifest names them.

A file holds each pair once, with its route, for all queries and buckets of the task. Its name contains the
writing engine's fencing epoch and a random part, so that a second attempt or a survivor never overwrites
a file that a manifest names.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from operators.segment import decode_rows

REPORT_SCHEMA = "kind string, name string, payload string"
_REPORT_ARROW = pa.schema([("kind", pa.string()), ("name", pa.string()), ("payload", pa.string())])


@dataclass(frozen=True, slots=True)
class ResultWriter:
    """Writes the output of one task.

    Attributes:
        results_dir: Directory of result files.
        late_dir: Directory of late rows; None keeps no late rows.
        epoch: Fencing epoch of the engine.
    """

    results_dir: str
    late_dir: str | None
    epoch: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write every payload of a task and yield one line per file and report.

        Args:
            batches: Rows (kind, name, payload) of ``service.chain_processor``.

        Yields:
            Rows (kind, name, payload): reports as they came, and (kind, family or stream id,
            {"path", "rows"}) for each file.
        """
        tables: dict[tuple[str, str], list[pa.RecordBatch]] = {}
        lines: list[tuple[str, str, str]] = []
        for batch in batches:
            for kind, name, payload in zip(*(column for column in batch.columns), strict=True):
                if kind.as_py() == "report":
                    lines.append(("report", name.as_py(), payload.as_py().decode()))
                else:
                    tables.setdefault((kind.as_py(), name.as_py()), []).append(
                        decode_rows(payload.as_buffer())
                    )
        # Every bucket reports, so whatever a task writes comes with the number of its batch.
        number = json.loads(lines[0][2])["batch"] if lines else None
        for (kind, name), parts in tables.items():
            directory = self.results_dir if kind == "results" else self.late_dir
            if directory is None:
                continue
            file_name = f"b{number:09d}-{name}-e{self.epoch}-{uuid.uuid4().hex[:12]}.parquet"
            rows = self._write(Path(directory) / file_name, parts)
            lines.append((kind, name, json.dumps({"path": file_name, "rows": rows})))
        columns = [pa.array(column, pa.string()) for column in zip(*lines, strict=True)] if lines else []
        if columns:
            yield pa.RecordBatch.from_arrays(columns, schema=_REPORT_ARROW)

    def _write(self, path: Path, parts: list[pa.RecordBatch]) -> int:
        # Pairs are written once and read by column: plain pages, dictionaries only where values repeat.
        repeated = [c for c in ("_route", "_plan_version", "_batch") if c in parts[0].schema.names]
        with (
            path.open("wb") as file,
            pq.ParquetWriter(
                file, parts[0].schema, compression="lz4", use_dictionary=repeated, write_statistics=False
            ) as writer,
        ):
            for part in parts:
                writer.write_batch(part, row_group_size=max(part.num_rows, 1))
        return sum(part.num_rows for part in parts)

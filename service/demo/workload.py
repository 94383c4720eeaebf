"""The demo as a workload file, for ``sluice run``, ``sluice plan``, and tests against another engine."""

from __future__ import annotations

from pathlib import Path

import yaml

from catalog.times.durations import format_duration
from catalog.values.stream import FilesSource, Stream
from service.demo.data import DAY_US, demo_streams, load_tables, steps, write_step
from service.demo.queries import QUERIES

#: A week per file: 53 files per stream, about 6,900 rows a batch.
STEP_US = 7 * DAY_US


def write_workload(
    directory: Path, *, step_us: int = STEP_US, max_files_per_batch: int | None = None
) -> Path:
    """Write the demo's streams as Parquet files and a workload file over them; return the workload file.

    Args:
        directory: Target directory, created if it is missing.
        step_us: Event time per file, µs.
        max_files_per_batch: Maximum number of files of a stream in one batch; None lets the engine decide.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for step in steps(load_tables(), step_us):
        write_step(step, directory)
    document = {
        "streams": [_document(stream) for stream in demo_streams(directory, max_files_per_batch)],
        "queries": [{"name": query.name, "cql": query.cql} for query in QUERIES],
        "strategy": "mem-opt",
    }
    path = directory / "workload.yaml"
    path.write_text(yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120))
    return path


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _document(stream: Stream) -> dict[str, object]:
    assert isinstance(stream.source, FilesSource)
    source: dict[str, object] = {
        "type": "files",
        "format": stream.source.format,
        "path": stream.name,
        "settle": 0,
    }
    if stream.source.max_files_per_batch is not None:
        source["max_files_per_batch"] = stream.source.max_files_per_batch
    return {
        "name": stream.name,
        "columns": {column.name: column.type for column in stream.columns},
        "event_time": stream.event_time,
        "lateness": format_duration(stream.lateness_us),
        "max_ahead": None if stream.max_ahead_us is None else format_duration(stream.max_ahead_us),
        "source": source,
    }

"""The report: peers.md, the measurements as peers.json, and the plots."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.bench.peers.measurement import Measurement, Rates
from tests.bench.peers.medians import Row, Section, sections
from tests.bench.peers.peers import PEERS
from tests.bench.peers.plots import plot_long_windows, plot_rates
from tests.bench.peers.targets import target_rows
from tests.bench.peers.workloads import WORKLOADS

_LONG = "long-window-"


def read_report(out: Path) -> list[Measurement]:
    """Return the measurements of earlier runs, none where there are none."""
    path = out / "peers.json"
    if not path.exists():
        return []
    return [_measurement(m) for m in json.loads(path.read_text(encoding="utf-8"))["measurements"]]


def merge(measured: Sequence[Measurement], found: Measurement) -> list[Measurement]:
    """Return the measurements with a new one, which takes the place of an older one of the same."""
    return [*(m for m in measured if m.key != found.key), found]


def write_report(out: Path, measured: Sequence[Measurement]) -> str:
    """Write everything from the measurements and return the text."""
    document = {"measurements": [asdict(m) for m in measured]}
    (out / "peers.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    found = sections(measured, list(WORKLOADS))
    parts = [_head(measured)]
    if targets := target_rows(found):
        header = ("workload", "Sluice against", "wanted", "whole job", "steady state")
        parts.append(f"## What was wanted\n\n{_TARGETS}\n\n{_table(header, targets)}")
    parts.append(_METHOD)
    parts += [_section(out, section) for section in found]
    if long := _long_windows(out, found):
        parts.append(long)
    parts.append(_peers(found))
    text = "\n\n".join(parts) + "\n"
    (out / "peers.md").write_text(text, encoding="utf-8")
    return text


def _measurement(document: dict[str, object]) -> Measurement:
    rates = {name: Rates(**document[name]) for name in ("rates", "sluice")}  # type: ignore[arg-type]  # JSON
    return Measurement(**(document | rates))  # type: ignore[arg-type]  # JSON


def _head(measured: Sequence[Measurement]) -> str:
    versions: dict[str, str] = {}
    for one in measured:
        versions |= one.versions
    named = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    runs = len({m.run for m in measured})
    machines = "; ".join(dict.fromkeys(m.machine for m in measured if m.machine))
    small = " **Some of it in small form (`--quick`), whose rates mean little.**"
    small = small if any(m.quick for m in measured) else ""
    return f"""# Sluice beside its peers

Written by `make bench` (`tests/bench/peers`); every measurement is in `peers.json`.
{machines}; {named}. Medians of up to {runs} runs; every ratio was taken within one run.{small}"""


_TARGETS = """How many times faster Sluice is, or where the row says so, how many times longer something
takes. A workload without a row here was not measured in full form."""

_METHOD = """## How it was measured

- **Same rows.** Every engine reads the same generated rows, and Sluice is measured over each part of them
  that a peer is given. Slow peers are given the beginning only; their rates are per row, and their states are
  smaller for it, which favours them.
- **Counted.** Results are counted per query and compared with DuckDB's over the same files. A row whose
  counts differ is a failure and has no rate.
- **Three rates**, of all engines alike, in rows of both streams per second, each row counted once: *process*,
  from the start of the program to its end; *job*, from the start of the job on a running engine to its last
  result; *steady*, from when every join has done the rows of two batches. Engines without batches of their
  own (Flink, Pathway) are taken by what they have read.
- **One file is one batch**; `x5` takes five at a time.
- **Written or not.** Sluice writes every result and commits every batch. Native Spark commits its state, and
  Flink and Pathway checkpoint nothing; none of the peers writes its results: they are counted and dropped.
  That favours the peers.
- **Settings.** Native Spark: as many shuffle partitions as cores, no batches without rows, watermarks without
  delay; RocksDB with changelog checkpointing, no row counting, and state format 4. Flink: object reuse,
  counts in windows, one CSV file per stream so that no row is late, half of the memory for
  RocksDB. Pathway: as many threads as cores, a commit a second.
- **Not comparable.** Flink and Pathway read CSV, for their packages read no Parquet (`flink-read` says what
  that costs). DuckDB's join sees all rows at once, and `spark-shuffle` joins nothing: they are limits.
- **Joins per query** are run for twelve of a workload's queries at most, those with the smallest and largest
  windows among them; with all of them such a peer can only be slower."""


def _section(out: Path, section: Section) -> str:
    workload = WORKLOADS[section.workload]
    picture = f"peers-{section.workload}{'' if section.scale == 1 else f'-{section.scale:g}'}.png"
    title = f"## {section.workload}"
    if section.scale != 1:
        title += f", {section.scale:g} of the rows"
    if section.quick:
        title, picture = f"{title}, small form", f"quick-{picture}"
    plot_rates(out / picture, section)
    header = (
        *("", "queries", "rows", "process, rows/s", "job", "steady"),
        *("Sluice is x times: process", "job", "steady", "batch s, p50", "p99", "memory, GB", "runs"),
    )
    return f"""{title}

{workload.says[0].upper()}{workload.says[1:]}.

{_table(header, [_line(row) for row in section.rows])}

![Rates]({picture})"""


def _line(row: Row) -> tuple[str, ...]:
    one = row.first
    asked = f"{one.queries}" if one.queries in (0, one.of_queries) else f"{one.queries} of {one.of_queries}"
    head = (one.peer, asked, f"{one.rows:,}")
    if not row.good:
        return (*head, f"**failed**: {_cell('; '.join(row.errors))}", *([""] * 8), "0")
    failed = f", failed {len(row.runs) - len(row.good)}: {_cell('; '.join(row.errors))}" if row.errors else ""
    times = row.times if one.peer != "sluice" else Rates()
    peak_bytes = row.median(lambda m: m.peak_bytes or None)  # over before it was looked at
    return (
        *head,
        *(_number(rate, ",.0f") for rate in (row.rates.process, row.rates.job, row.rates.steady)),
        *(_number(rate, ",.2f") for rate in (times.process, times.job, times.steady)),
        _number(row.median(lambda m: m.batch_p50_s), ".2f"),
        _number(row.median(lambda m: m.batch_p99_s), ".2f"),
        _number(None if peak_bytes is None else peak_bytes / 2**30, ".1f"),
        f"{len(row.good)}{failed}",
    )


def _long_windows(out: Path, found: Sequence[Section]) -> str:
    """Return how rates hold up as windows grow, if two lengths were measured at the same scale."""
    own = [s for s in found if s.workload.startswith(_LONG) and not s.quick]
    scale = own[0].scale if own else None
    lines: dict[str, list[tuple[int, float]]] = {}
    for section in own:
        for name in PEERS:
            row = section.row(name)
            if section.scale == scale and row is not None and row.rates.job is not None:
                lines.setdefault(name, []).append((int(section.workload[len(_LONG) :]), row.rates.job))
    lines = {name: line for name, line in lines.items() if len(line) > 1}
    if not lines:
        return ""
    plot_long_windows(out / "peers-long-windows.png", lines)
    rows = [
        (name, f"{line[-1][0] // line[0][0]}", f"{line[0][1] / line[-1][1]:.2f}")
        for name, line in lines.items()
    ]
    header = ("", "windows, times as long", "throughput falls by a factor of")
    return f"""## Throughput over the length of the windows

{_table(header, rows)}

![Rates over the length of the windows](peers-long-windows.png)"""


def _peers(found: Sequence[Section]) -> str:
    names = dict.fromkeys(r.first.peer for s in found for r in s.rows)
    rows = [(name, PEERS[name].says) for name in names]
    return f"## What the names mean\n\n{_table(('', ''), rows)}"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


def _table(header: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)

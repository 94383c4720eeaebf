"""The report: peers.md, the measurements as peers.json, and the plots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from tests.bench.peers.live import Live
from tests.bench.peers.measurement import Measurement, Rates
from tests.bench.peers.medians import Row, Section, sections
from tests.bench.peers.peers import PEERS
from tests.bench.peers.plots import plot_long_windows, plot_rates
from tests.bench.peers.targets import target_rows
from tests.bench.peers.workloads import WORKLOADS
from tests.bench.reports import read_figures, table, write_page

_LONG = "long-window-"


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was measured.

    Attributes:
        measured: Runs over files.
        live: Runs of the service.
    """

    measured: tuple[Measurement, ...] = ()
    live: tuple[Live, ...] = ()

    def with_measurement(self, found: Measurement) -> Report:
        """Return the report with a run, which takes the place of an older one of the same."""
        return replace(self, measured=(*(m for m in self.measured if m.key != found.key), found))

    def with_live(self, found: Live) -> Report:
        """Return the report with a run of the service, likewise."""
        kept = (run for run in self.live if (run.run, run.quick) != (found.run, found.quick))
        return replace(self, live=(*kept, found))

    def has_live(self, bench: str, run: int, *, quick: bool) -> bool:
        """Return whether a run of the service was made in a bench."""
        return any((one.bench, one.run, one.quick) == (bench, run, quick) for one in self.live)

    @property
    def newest(self) -> str:
        """The bench that was begun last."""
        return max((one.bench for one in self.every), default="")

    @property
    def every(self) -> tuple[Measurement | Live, ...]:
        """All runs of both kinds."""
        return (*self.measured, *self.live)


def read_report(out: Path) -> Report:
    """Return what earlier runs measured, nothing where there are none."""
    document = read_figures(out / "peers.json")
    return Report(
        tuple(_measurement(m) for m in document.get("measurements", ())),
        tuple(Live(**run) for run in document.get("live", ())),
    )


def write_report(out: Path, report: Report) -> str:
    """Write everything from the measurements and return the text."""
    document = {
        "measurements": [asdict(m) for m in report.measured],
        "live": [asdict(run) for run in report.live],
    }
    found = sections(report.measured, list(WORKLOADS))
    header = ("", "where", "what", "wanted", "whole job", "steady state")
    targets = table(header, target_rows(found, report.live), texts=3)
    parts = [_head(report), f"## Targets\n\n{_TARGETS}\n\n{targets}", _METHOD]
    parts += [_section(out, section) for section in found]
    if report.live:
        parts.append(_live(report.live))
    if long := _long_windows(out, found):
        parts.append(long)
    parts.append(_peers(found))
    return write_page(out, "peers", "\n\n".join(parts), document)


def _measurement(document: dict[str, object]) -> Measurement:
    rates = {name: Rates(**document[name]) for name in ("rates", "sluice")}  # type: ignore[arg-type]  # JSON
    return Measurement(**(document | rates))  # type: ignore[arg-type]  # JSON


def _head(report: Report) -> str:
    versions: dict[str, str] = {}
    for one in report.measured:
        versions |= one.versions
    named = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    every = report.every
    runs = len({one.run for one in every})
    machines = "; ".join(dict.fromkeys(one.machine for one in every if one.machine))
    small = " **Some of it in small form (`--quick`), whose rates mean little.**"
    small = small if any(one.quick for one in every) else ""
    return f"""# Sluice beside its peers

Written by `make bench` (`tests/bench/peers`); every measurement is in `peers.json`.
{machines}; {named}. Medians of up to {runs} runs (each table says of how many); every ratio was taken
within one run.{small}"""


_TARGETS = """Steady state leaves out the rows of two batches. Each rate is compared with that of Sluice over
the same part of the rows in the same run; the parts are in the tables below. The best of some peers is the
one with the highest rate of the whole job, each over its own part. Not measured here: the work of the fullest
bucket (target 2) and scaling (target 8)."""

_METHOD = """## How it was measured

- **Same rows.** Every engine reads the same generated rows, and Sluice is measured over each part of them
  that a peer is given. Slow peers are given the beginning only, as much as they do in a minute or two; their
  windows fill less and their states are smaller for it, which favours them. Files are made smaller where
  fewer than four would be left, which favours nobody who has a cost per batch: `x5` takes them as one.
- **In turn.** In each run one peer follows the other, Sluice before those that are given the same part. A run
  that is not done after 400 s is given up, and that peer is not run again on that workload.
- **Warm-up** is in the rates *process* and *job* of all engines, and in nobody's *steady*.
- **Counted.** Results are counted per query and compared with DuckDB's over the same files. A row whose
  counts differ is a failure and has no rate.
- **Three rates**, of all engines alike, in rows of both streams per second, each row counted once: *process*,
  from the start of the program to its end; *job*, from the start of the job on a running engine to its last
  result; *steady*, from when every join has done the rows of two batches. Engines without batches of their
  own (Flink, Pathway) are taken by what they have read.
- **One file is one batch**; `x5` takes five at a time. Where Sluice has *own batches* (`sluice-auto`) nobody
  tells it how many rows a batch has, and it is compared with the best of the peers' forms over all rows. In
  few-keys and skew files are small, which suits native Spark: within a batch it compares all rows of a key
  before it looks at their times. There Sluice takes ten files as a batch.
- **Written or not.** Sluice writes every result and commits every batch. Native Spark commits its state, and
  Flink and Pathway checkpoint nothing; none of the peers writes its results: they are counted and dropped.
  That favours the peers.
- **Settings.** Native Spark: as many shuffle partitions as cores, no batches without rows, watermarks without
  delay, a pool of the fair scheduler for each query; RocksDB with changelog checkpointing, no row counting,
  and state format 4. Flink: object reuse, counts in windows, one CSV file per stream so that no row is late;
  RocksDB with half of the memory, options for flash, Bloom filters, timers on the heap. Pathway: as many
  threads as cores, a commit a second. Heaps of peers are 10 GB, Sluice has its defaults. The quick
  compiler that Sluice sets for its JVM is not set for the peers', which have Java's defaults.
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

{table(header, [_line(row) for row in section.rows])}

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


def _live(runs: Sequence[Live]) -> str:
    """Return what the service did with live streams, whole runs if there are any."""
    chosen = [run for run in runs if not run.quick] or list(runs)
    good = [run for run in chosen if not run.error]

    def line(what: str, value: Callable[[Live], float | None], form: str) -> tuple[str, ...]:
        values = [value(run) for run in good]
        known = [v for v in values if v is not None]
        shown = _number(median(known) if known else None, form)
        return (what, shown, ", ".join(_number(v, form) for v in values))

    rows = [
        line("first answer after, s", lambda run: run.answers_s, ".2f"),
        line("first result after, s", lambda run: run.first_result_s, ".2f"),
        line("events a second, both streams", lambda run: run.rows_per_s, ",.0f"),
        line("latency, p50, ms", lambda run: _ms(run.latency_p50_s), ",.0f"),
        line("latency, p99, ms", lambda run: _ms(run.latency_p99_s), ",.0f"),
        line("batch meanwhile, median, ms", lambda run: _ms(run.batch_s), ",.0f"),
        line("floor of a micro-batch, ms", lambda run: _ms(run.floor_s), ",.0f"),
        line("latency, p50, in floors", lambda run: run.p50_floors, ".2f"),
        line("latency, p99, in floors", lambda run: run.p99_floors, ".2f"),
        line("cores used at rest", lambda run: run.idle_cores, ".3f"),
        line("results read, of one query", lambda run: run.read, ",.0f"),
        line("results of all queries, as DuckDB counts them", lambda run: run.results, ",.0f"),
    ]
    failed = "".join(f"\n\n**failed**, run {run.run}: {run.error}" for run in chosen if run.error)
    small = " In short form, windows not yet full." if any(run.quick for run in chosen) else ""
    return f"""## live

`sluice serve` with the 100 queries of selective, 10,000 events a second posted in requests of 500, and one
query's results read over HTTP, by requests that wait for some. Latency is from an event being written, just
before its request, to the result being read. The floor is the median batch of the same process with an event
every 25 ms. Both are measured in turn, in whole runs three times, each time with windows full.{small}

{table(("", "median", "runs"), rows)}{failed}"""


def _ms(value_s: float | None) -> float | None:
    return None if value_s is None else 1000 * value_s


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

{table(header, rows)}

![Rates over the length of the windows](peers-long-windows.png)"""


def _peers(found: Sequence[Section]) -> str:
    names = dict.fromkeys(r.first.peer for s in found for r in s.rows)
    rows = [(name, PEERS[name].says) for name in names]
    return f"## What the names mean\n\n{table(('', ''), rows, texts=2)}"


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")

"""The command line: ``sluice run | plan | top | calibrate | repair | backup | restore | move`` and more.

``query``, ``stream``, ``key`` and ``catalog`` are groups of commands; ``api.main`` adds further commands.

Exit codes: 0 success; 1 something is broken; 2 the request is invalid or cannot be carried out; 3 a run
finished but set files aside or skipped rows. Errors are written to stderr as ``error: <text>``, with detail
and hint on the lines below. Commands import modules that load Spark or sqlglot only when they run, so that
``sluice --help`` stays quick.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from catalog.errors import Conflict, InvalidInput, NotFound, SluiceError
from service.cli.catalog_cli import catalog_commands
from service.cli.client_cli import DEFAULT_URL, UrlOption, client, query_commands, stream_commands
from service.cli.key_cli import key_commands
from service.cli.options import DataDirOption, JsonOption, echo_for_programs, sayer
from service.cli.progress import show_work, watch_run
from service.cli.results_cli import query_results
from service.cli.top import top
from service.config.settings import SparkSettings, load_settings
from service.errors import WorkloadMissing, disk_failed
from service.log import setup_logging

if TYPE_CHECKING:
    from service.config.data_dir import ResultsForm as RunResults
    from service.documents.workload import Workload
    from service.jvm.jvm import Jvm

#: Exit status after SIGTERM, as in shells.
_TERMINATED = 128 + signal.SIGTERM
#: Exit status of a run that set files aside or skipped rows.
_INCOMPLETE = 3
#: Umask: only the owner can access the files and directories that a command creates.
PRIVATE_UMASK = 0o077

app = typer.Typer(
    name="sluice",
    help="Shared window joins: many continuous queries, one state-slice chain, one Spark job.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
query_commands.command("results")(query_results)
app.command()(top)
app.add_typer(query_commands, name="query")
app.add_typer(stream_commands, name="stream")
app.add_typer(key_commands, name="key")
app.add_typer(catalog_commands, name="catalog")

WorkloadArgument = Annotated[Path, typer.Argument(metavar="WORKLOAD.yaml", show_default=False)]
CoresOption = Annotated[int | None, typer.Option(help="Cores that Spark may use.", show_default="all")]
BucketsOption = Annotated[
    int | None,
    typer.Option(help="Hash buckets of the join state; fixed by the first batch.", show_default="cores"),
]


class ResultsForm(StrEnum):
    """Form of the result files of ``sluice run``: a directory per query, or each pair once."""

    PER_QUERY = "per-query"
    SHARED = "shared"


class PlanForm(StrEnum):
    """Format of a printed plan."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"


class StrategyName(StrEnum):
    """Strategy for joining the queries."""

    UNSHARED = "unshared"
    PULLUP = "pullup"
    PUSHDOWN = "pushdown"
    MEM_OPT = "mem-opt"
    CPU_OPT = "cpu-opt"


class CostModelOption(StrEnum):
    """Cost model whose CPU cost decides between plans."""

    PAPER = "paper"
    CALIBRATED = "calibrated"


StrategyOption = Annotated[
    StrategyName | None,
    typer.Option(help="Strategy for joining the queries.", show_default="the workload's, or mem-opt"),
]
FormatOption = Annotated[PlanForm, typer.Option("--format", help="Output format.")]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"sluice {version('sluice')}")
        raise typer.Exit


@app.callback()
def sluice(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Accept the options that stand before the name of a command."""


@app.command()
def run(
    workload: WorkloadArgument,
    out: Annotated[
        Path, typer.Option(help="Directory of the results and of all files that a restart needs.")
    ],
    results: Annotated[ResultsForm, typer.Option(help="Files: a directory per query, or each pair once.")] = (
        ResultsForm.PER_QUERY
    ),
    strategy: StrategyOption = None,
    cores: CoresOption = None,
    buckets: BucketsOption = None,
    log_level: Annotated[
        str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.", show_default="INFO")
    ] = None,
    final: Annotated[
        bool,
        typer.Option(
            "--final",
            help="End all streams permanently: decide rows without a partner, and close groups.",
        ),
    ] = False,
) -> None:
    """Run a workload over all available input, write results, and exit; a terminal shows a progress bar.

    The last line on stdout is one JSON object with counts and rates. The exit status is 3 if the run finished
    but set files aside or skipped rows; the JSON object and stderr name the files. After a kill, the
    same command with the same --out continues the run.
    """
    settings = load_settings(cores=cores, buckets=buckets, log_level=log_level)
    setup_logging(settings.log.level, settings.log.format)
    from service.documents.workload import bind_workload, check_sources, load_workload

    loaded = load_workload(workload)
    check_sources(loaded)
    bound = bind_workload(loaded)
    with _early_jvm(loaded, out, results.value, settings.spark) as jvm:
        from service.workspace.bounded_run import run_workload

        summary = run_workload(
            bound,
            out,
            results=results.value,
            settings=settings,
            strategy=None if strategy is None else strategy.value,
            jvm=jvm,
            final=final,
            watch=watch_run,
            tell=_warning_once(),
        )
    typer.echo(json.dumps(dataclasses.asdict(summary)))
    if summary.set_aside or summary.skipped:
        raise typer.Exit(_INCOMPLETE)


def _warning_once() -> Callable[[str], None]:
    """Return a function that prints each different warning once on stderr."""
    told: set[str] = set()

    def tell(text: str) -> None:
        if text not in told:
            told.add(text)
            typer.echo(f"warning: {text}", err=True)

    return tell


@contextmanager
def _early_jvm(
    loaded: Workload, out: Path, results: RunResults, spark: SparkSettings
) -> Iterator[Jvm | None]:
    """Launch Spark's JVM while a run imports modules, unless the run's script may be refused."""
    from service.config.data_dir import run_data_dir
    from service.jvm.jvm import launched

    if any(step.migration is not None for step in loaded.script):
        yield None
    else:
        with launched(spark, run_data_dir(out, results).spark_log) as jvm:
            jvm.start_fork_server()
            yield jvm


@app.command()
def plan(
    workload: Annotated[
        Path | None,
        typer.Argument(
            metavar="[WORKLOAD.yaml]", help="Workload file; without it, show the plan of the running service."
        ),
    ] = None,
    form: FormatOption = PlanForm.TEXT,
    strategy: StrategyOption = None,
    cost_model: Annotated[
        CostModelOption | None,
        typer.Option(help="Cost model by which the plan is chosen.", show_default="calibrated"),
    ] = None,
    c_sys: Annotated[
        float | None, typer.Option(min=0, help="C_sys of the paper's model, comparisons per row and slice.")
    ] = None,
    statistics: Annotated[
        Path | None, typer.Option(help="YAML or JSON file of statistics to use instead of sampled ones.")
    ] = None,
    chain: Annotated[
        list[str] | None,
        typer.Option(help="Cost these slice ends, too: 10,30 or A=10,30 (repeat it for the other stream)."),
    ] = None,
    chain_family: Annotated[
        str | None, typer.Option(help='Family that --chain is for, such as "A.k = B.k".')
    ] = None,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Print a workload file's plan with the cost of every strategy, or the plan of the service."""
    if workload is None:
        _refuse_options(
            strategy=strategy,
            cost_model=cost_model,
            c_sys=c_sys,
            statistics=statistics,
            chain=chain,
            chain_family=chain_family,
        )
        typer.echo(client(url).text("GET", "/plan", params={"format": form.value}).rstrip("\n"))
        return
    from service.cli.plan_workload import chain_option, plan_text
    from service.config.calibration import data_dir_calibration

    settings = load_settings()
    text = plan_text(
        workload,
        form.value,
        settings,
        data_dir_calibration(settings.storage),
        strategy=None if strategy is None else strategy.value,
        cost_model=None if cost_model is None else cost_model.value,
        c_sys=c_sys,
        statistics=statistics,
        chain=chain_option(chain or [], chain_family),
        tell=_warning_once(),
    )
    typer.echo(text)


@app.command()
def calibrate(
    data_dir: DataDirOption = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer and shorter runs: less than a minute, less accurate.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Measure the cost of work on this machine for the calibrated cost model, and store it; takes minutes."""
    settings = load_settings(data_dir=data_dir)
    setup_logging("WARNING", settings.log.format)
    from service.calibrate.command import calibrate_command

    with show_work("measuring what work costs"):
        found = calibrate_command(settings.storage, quick=quick, say=sayer(as_json))
    echo_for_programs(dataclasses.asdict(found), as_json)


@app.command()
def repair(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="DATA_DIR", help="Directory of a service, or output of a run.", show_default=False
        ),
    ],
    yes: Annotated[
        bool, typer.Option("--yes", help="Repair; without this option nothing is changed.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Report why a service cannot start on a data directory, and repair the directory if possible."""
    settings = load_settings()
    setup_logging("WARNING", settings.log.format)
    from service.maintenance.diagnosis.repair import repair

    with show_work(f"{'repairing' if yes else 'checking'} {directory}"):
        found = repair(directory, settings.storage, settings.spark, yes=yes, say=sayer(as_json))
    echo_for_programs(found, as_json)


@app.command()
def backup(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="New directory of the backup.", show_default=False)
    ],
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a data directory consistently, even while its service runs, without delaying batches."""
    settings = load_settings(data_dir=data_dir)
    setup_logging("WARNING", settings.log.format)
    from service.maintenance.backup import backup_command

    with show_work(f"copying to {directory}"):
        made = backup_command(settings.storage, directory, say=sayer(as_json))
    echo_for_programs(made, as_json)


@app.command()
def restore(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Directory that sluice backup made.", show_default=False)
    ],
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore a backup to a data directory that is new or empty."""
    settings = load_settings(data_dir=data_dir)
    setup_logging("WARNING", settings.log.format)
    from service.maintenance.backup import restore_command

    with show_work(f"restoring {directory}"):
        made = restore_command(directory, settings.storage, say=sayer(as_json))
    echo_for_programs(made, as_json)


@app.command()
def move(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Data directory, new or empty.", show_default=False)
    ],
    data_dir: DataDirOption = None,
    to: Annotated[
        str | None,
        typer.Option(help="URL of the storage to use from then on, such as s3://bucket/prefix."),
    ] = None,
    catalog_url: Annotated[
        str | None,
        typer.Option(help="URL of the catalog to use from then on.", show_default="SQLite in DIR"),
    ] = None,
    buckets: Annotated[
        int | None,
        typer.Option(min=1, help="Number of buckets to hash the state into.", show_default="as many as now"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Move a stopped data directory with its state to another directory, storage, catalog or buckets."""
    settings = load_settings(data_dir=data_dir)
    setup_logging("WARNING", settings.log.format)
    from service.maintenance.move_command import move_command

    say = sayer(as_json)
    with show_work(f"moving to {directory}"):
        moved = move_command(directory, settings, to=to, catalog_url=catalog_url, buckets=buckets, say=say)
    echo_for_programs(moved, as_json)


def _refuse_options(**options: object) -> None:
    """Refuse options that apply only to a workload file."""
    for name, value in options.items():
        if value:
            raise WorkloadMissing(
                f"--{name.replace('_', '-')} needs a workload file",
                hint="For a running service, POST /api/v1/plan:preview shows the effect of a change.",
            )


def run_command_line() -> None:
    """Run the command that the process was started with, and turn errors into exit codes."""
    # JVM and workers inherit the mask, so that other users cannot read the files that they write.
    os.umask(PRIVATE_UMASK)
    signal.signal(signal.SIGTERM, _end)
    try:
        app()
    except (SluiceError, OSError) as error:
        told = error if isinstance(error, SluiceError) else disk_failed(error)
        if told is None:
            raise
        sys.stdout.flush()
        typer.echo(f"error: {told}", err=True)
        sys.exit(2 if isinstance(told, (InvalidInput, NotFound, Conflict)) else 1)
    except SystemExit as end:
        if end.code == _TERMINATED:
            typer.echo("sluice: ended by SIGTERM; committed batches stay", err=True)
        raise
    finally:
        # The engine froze objects (``gc.freeze``). Without this call they would outlive the interpreter, and
        # DuckDB's bindings would print messages about DuckDB objects among them.
        gc.unfreeze()


def _end(number: int, _frame: FrameType | None) -> None:
    """Raise an exception, so that Spark is stopped and temporary files are removed."""
    raise SystemExit(128 + number)

"""The console script ``sluice``: the command line of ``service.cli``, and the commands that serve the API.

service.cli.cli     run, plan, calibrate, query, stream
here                serve, demo
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.cli.cli import (
    BucketsOption,
    CoresOption,
    DataDirOption,
    StrategyOption,
    app,
    run_command_line,
)
from service.config.log import setup_logging
from service.config.settings import load_settings

HostOption = Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")]
PortOption = Annotated[int | None, typer.Option(help="Port to listen on. [default: 8080]")]


@app.command()
def serve(
    data_dir: DataDirOption = None,
    host: HostOption = None,
    port: PortOption = None,
    cores: CoresOption = None,
    buckets: BucketsOption = None,
    strategy: StrategyOption = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
) -> None:
    """Run the API and the engine in one process until a signal comes."""
    settings = load_settings(
        data_dir=data_dir,
        host=host,
        port=port,
        cores=cores,
        buckets=buckets,
        strategy=strategy,
        log_level=log_level,
    )
    setup_logging(settings.log.level, settings.log.format)
    from api.serve import serve as serve_until_signal

    where = f"http://{settings.server.host}:{settings.server.port} from {settings.storage.data_dir}"
    serve_until_signal(settings, lambda: typer.echo(f"sluice: serving on {where}", err=True))


@app.command()
def demo(
    speed: Annotated[
        float | None,
        typer.Option(min=1, help="Seconds of 2013 per second. [default: 86400; with --once, all at once]"),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Run all of it, print the results, exit.")] = False,
    data_dir: Annotated[Path | None, typer.Option(help="Where to keep it. [default: fresh, removed]")] = None,
    host: HostOption = None,
    port: PortOption = None,
    cores: CoresOption = None,
    buckets: BucketsOption = None,
    write: Annotated[
        Path | None, typer.Option(help="Only write the streams and a workload file into this directory.")
    ] = None,
) -> None:
    """Replay flights and weather of New York, 2013, under more than a dozen queries."""
    if write is not None:
        from service.demo.workload import write_workload

        typer.echo(str(write_workload(write)))
        return
    settings = load_settings(host=host, port=port, cores=cores, buckets=buckets)
    setup_logging("WARNING", settings.log.format)
    from api.serve import serving
    from service.demo.run import run_demo

    run_demo(settings, serving, speed=speed, once=once, data_dir=data_dir)


def main() -> None:
    """Run the command line."""
    run_command_line()


if __name__ == "__main__":
    main()

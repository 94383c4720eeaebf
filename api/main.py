"""The console script ``sluice``: the commands of ``service.cli``, and those that start the API.

service.cli.cli     run, plan, calibrate, query, stream
here                serve, api, engine, doctor, demo
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from service.cli.cli import (
    BucketsOption,
    CoresOption,
    StrategyOption,
    app,
    run_command_line,
)
from service.cli.options import DataDirOption
from service.config.settings import Settings, load_settings
from service.log import setup_logging

if TYPE_CHECKING:
    from api.app import Part

HostOption = Annotated[str | None, typer.Option(help="Address to listen on.", show_default="127.0.0.1")]
PortOption = Annotated[int | None, typer.Option(help="Port to listen on.", show_default="8080")]
CertificateOption = Annotated[
    Path | None, typer.Option(help="Certificate chain, PEM; with it the API speaks TLS.")
]
PrivateKeyOption = Annotated[
    Path | None, typer.Option(help="Private key of the certificate, PEM.", show_default="in --tls-cert")
]
ClientCaOption = Annotated[
    Path | None, typer.Option(help="CA certificates, PEM; with them each client needs a certificate.")
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Admit all clients that reach the address, without a key.")
]
LogLevelOption = Annotated[
    str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.", show_default="INFO")
]


@app.command()
def serve(
    data_dir: DataDirOption = None,
    host: HostOption = None,
    port: PortOption = None,
    cores: CoresOption = None,
    buckets: BucketsOption = None,
    strategy: StrategyOption = None,
    tls_cert: CertificateOption = None,
    tls_key: PrivateKeyOption = None,
    tls_client_ca: ClientCaOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Run the API and the engine in one process until a signal stops it.

    If other machines can reach the address, clients need a key (sluice key create) or a certificate.
    """
    settings = load_settings(
        data_dir=data_dir,
        host=host,
        port=port,
        cores=cores,
        buckets=buckets,
        strategy=strategy,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        insecure=insecure or None,
        log_level=log_level,
    )
    _serve(settings, "serving", settings.server.port, ("api", "engine"))


@app.command()
def api(
    data_dir: DataDirOption = None,
    host: HostOption = None,
    port: PortOption = None,
    tls_cert: CertificateOption = None,
    tls_key: PrivateKeyOption = None,
    tls_client_ca: ClientCaOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Run only the API, beside an engine in another process on the same catalog and data directory.

    Several APIs may run. All processes of a service need the same settings (SLUICE_...), above all the
    settings of plans and buckets.
    """
    settings = load_settings(
        data_dir=data_dir,
        host=host,
        port=port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        insecure=insecure or None,
        log_level=log_level,
    )
    _serve(settings, "API", settings.server.port, ("api",))


@app.command()
def engine(
    data_dir: DataDirOption = None,
    host: HostOption = None,
    port: Annotated[
        int | None, typer.Option(help="Port of probes and metrics (engine_port).", show_default="8081")
    ] = None,
    cores: CoresOption = None,
    buckets: BucketsOption = None,
    strategy: StrategyOption = None,
    tls_cert: CertificateOption = None,
    tls_key: PrivateKeyOption = None,
    tls_client_ca: ClientCaOption = None,
    insecure: InsecureOption = False,
    log_level: LogLevelOption = None,
) -> None:
    """Run only an engine; while another engine is running, it stands by with its JVM started.

    It answers /health/live, /health/ready and /metrics.
    """
    settings = load_settings(
        data_dir=data_dir,
        host=host,
        engine_port=port,
        cores=cores,
        buckets=buckets,
        strategy=strategy,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_client_ca=tls_client_ca,
        insecure=insecure or None,
        log_level=log_level,
    )
    _serve(settings, "engine", settings.server.engine_port, ("engine",))


def _serve(settings: Settings, what: str, port: int, parts: Sequence[Part]) -> None:
    setup_logging(settings.log.level, settings.log.format)
    from api.serve import serve as serve_until_signal

    scheme = "http" if settings.access.tls_cert is None else "https"
    where = f"{scheme}://{settings.server.host}:{port} from {settings.storage.data_dir}"
    serve_until_signal(settings, lambda: typer.echo(f"sluice: {what} on {where}", err=True), parts=parts)
    typer.echo(f"sluice: {what} ended", err=True)


@app.command()
def doctor(
    data_dir: DataDirOption = None,
    host: HostOption = None,
    port: PortOption = None,
    cores: CoresOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array.")] = False,
) -> None:
    """Check what a service needs: Java, memory, disk, catalog, storage, port, clocks; change nothing.

    Exits with 1 if a service would not start, or does not work.
    """
    settings = load_settings(data_dir=data_dir, host=host, port=port, cores=cores)
    setup_logging("WARNING", settings.log.format)
    from rich.console import Console

    from service.maintenance.diagnosis.doctor import examine, table

    findings = list(examine(settings))
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(finding) for finding in findings], ensure_ascii=False))
    else:
        Console().print(table(findings))
    if any(finding.state == "problem" for finding in findings):
        raise typer.Exit(1)


@app.command()
def demo(
    speed: Annotated[
        float | None,
        typer.Option(
            min=1,
            help="Seconds of event time per second.",
            show_default="86400, auctions 3600; with --once, all at once",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Process all rows, print the results, and exit.")
    ] = False,
    auctions: Annotated[
        bool, typer.Option("--auctions", help="Replay generated auctions and bids, which show punctuations.")
    ] = False,
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory to keep the demo's data in.", show_default="fresh, removed")
    ] = None,
    host: HostOption = None,
    port: PortOption = None,
    cores: CoresOption = None,
    buckets: BucketsOption = None,
    write: Annotated[
        Path | None, typer.Option(help="Only write the streams and a workload file into this directory.")
    ] = None,
) -> None:
    """Run queries over replayed flights, weather and aircraft (New York, 2013), or auctions and bids."""
    if write is not None:
        if auctions:
            raise typer.BadParameter(
                "it writes only flights and weather, so leave out --auctions", param_hint="--write"
            )
        from service.demo.workload import write_workload

        typer.echo(str(write_workload(write)))
        return
    settings = load_settings(host=host, port=port, cores=cores, buckets=buckets)
    setup_logging("WARNING", settings.log.format)
    from api.serve import serving
    from service.demo.run import AUCTIONS, FLIGHTS, run_demo

    scene = AUCTIONS if auctions else FLIGHTS
    run_demo(settings, serving, speed=speed, once=once, data_dir=data_dir, scene=scene)


def main() -> None:
    """Run the command line."""
    run_command_line()


if __name__ == "__main__":
    main()

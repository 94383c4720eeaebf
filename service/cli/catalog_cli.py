"""``sluice catalog ...``: the tables of the catalog, looked at and migrated without starting a service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.config.settings import load_settings

catalog_commands = typer.Typer(help="Tables of the catalog of a service.", no_args_is_help=True)

DataDirOption = Annotated[
    Path | None,
    typer.Option(help="Data directory, where the catalog is unless SLUICE_CATALOG_URL names another place."),
]


@catalog_commands.command("check")
def check(data_dir: DataDirOption = None) -> None:
    """Compare the tables with those that this version needs; change nothing.

    Exits with 1 if they are of another version, differ from what the migrations make, or cannot be read.
    """
    from service.recovery.opening import check_catalog

    schema = check_catalog(load_settings(data_dir=data_dir).storage.effective_catalog_url)
    typer.echo(f'catalog has schema "{schema}", which this version of Sluice needs')


@catalog_commands.command("upgrade")
def upgrade(data_dir: DataDirOption = None) -> None:
    """Bring the tables to the schema of this version, in one transaction, and check them.

    An empty database of a server gets its tables. A service of this version does the same when it starts.
    """
    from service.recovery.opening import upgrade_catalog

    before, after = upgrade_catalog(load_settings(data_dir=data_dir).storage.effective_catalog_url)
    if before == after:
        typer.echo(f'catalog has schema "{after}" already')
    else:
        typer.echo(f'catalog upgraded from schema "{before or "none"}" to "{after}"')

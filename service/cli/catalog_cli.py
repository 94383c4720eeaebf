"""``sluice catalog ...``: check and migrate the tables of the catalog without starting a service."""

from __future__ import annotations

import typer

from service.cli.options import DataDirOption, JsonOption, echo_for_programs, sayer
from service.cli.progress import show_work
from service.config.settings import load_settings

catalog_commands = typer.Typer(help="Tables of the catalog of a service.", no_args_is_help=True)


@catalog_commands.command("check")
def check(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Compare the catalog's tables with the schema of this version; change nothing.

    Exits with 1 if the tables belong to another version, were changed by hand, or cannot be read.
    """
    from service.recovery.opening import check_catalog

    with show_work("checking the catalog"):
        schema = check_catalog(load_settings(data_dir=data_dir).storage.effective_catalog_url)
    sayer(as_json)(f'catalog has schema "{schema}", which this version of Sluice needs')
    echo_for_programs({"schema": schema}, as_json)


@catalog_commands.command("upgrade")
def upgrade(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Migrate the catalog's tables to the schema of this version, in one transaction, and check them.

    In an empty database on a server, the command creates the tables. A service also upgrades its catalog when
    it starts.
    """
    from service.recovery.opening import upgrade_catalog

    with show_work("upgrading the catalog"):
        before, after = upgrade_catalog(load_settings(data_dir=data_dir).storage.effective_catalog_url)
    if before == after:
        sayer(as_json)(f'catalog has schema "{after}" already')
    else:
        sayer(as_json)(f'catalog upgraded from schema "{before or "none"}" to "{after}"')
    echo_for_programs({"schema": after, "schema_before": before}, as_json)

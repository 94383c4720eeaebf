"""``sluice key ...``: API keys of clients. A running service notices changes of keys within a second."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.options import DataDirOption, JsonOption, echo_for_programs, sayer
from service.config.settings import load_settings

key_commands = typer.Typer(help="API keys for the clients of a service.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]


@key_commands.command("create")
def create(
    name: NameArgument,
    scope: Annotated[
        list[str],
        typer.Option(
            help="Scope of the key: read, ingest, write or admin; repeatable. read:orders_* is limited to "
            "streams and queries whose names begin with orders_.",
            show_default=False,
        ),
    ],
    rate: Annotated[int, typer.Option(help="Requests per second that the key allows.")] = 1000,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a key and print it; it cannot be shown again, since the catalog stores only its hash.

    Clients send it as "Authorization: Bearer KEY"; sluice query and sluice stream take it from SLUICE_KEY.
    """
    from service.access.api_keys import in_order
    from service.maintenance.client_keys import create_key

    key = create_key(load_settings(data_dir=data_dir).storage, name, scope, rate)
    sayer(as_json)(key)
    facts = {"name": name, "scopes": list(in_order(scope)), "rate_per_s": rate, "key": key}
    echo_for_programs(facts, as_json)


@key_commands.command("list")
def list_keys(data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """List the valid keys: name, scopes, requests per second; with --json one object per line."""
    from service.maintenance.client_keys import good_keys

    for key in good_keys(load_settings(data_dir=data_dir).storage):
        sayer(as_json)(f"{key.name}\t{','.join(key.scopes)}\t{key.rate_per_s}/s")
        document = {"name": key.name, "scopes": list(key.scopes), "rate_per_s": key.rate_per_s}
        echo_for_programs(document, as_json)


@key_commands.command("revoke")
def revoke(name: NameArgument, data_dir: DataDirOption = None, as_json: JsonOption = False) -> None:
    """Revoke a key: a running service refuses it within a second."""
    from service.maintenance.client_keys import revoke_key

    revoke_key(load_settings(data_dir=data_dir).storage, name)
    echo_for_programs({"name": name, "revoked": True}, as_json)

"""``sluice key ...``: keys of clients, in the catalog; a service that runs heeds changes within a second."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from service.config.settings import load_settings

key_commands = typer.Typer(help="Keys of clients of a service.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
DataDirOption = Annotated[
    Path | None, typer.Option(help="Data directory of the service.", show_default="./sluice-data")
]


@key_commands.command("create")
def create(
    name: NameArgument,
    scope: Annotated[
        list[str],
        typer.Option(
            help="What it allows: read, ingest, write or admin; may be repeated.", show_default=False
        ),
    ],
    rate: Annotated[int, typer.Option(help="Requests per second that it may send.")] = 1000,
    data_dir: DataDirOption = None,
) -> None:
    """Make a key and print it, once: the catalog has only its hash.

    Clients send it as "Authorization: Bearer KEY"; sluice query and sluice stream take it from SLUICE_KEY.
    """
    from service.workspace.client_keys import create_key

    typer.echo(create_key(load_settings(data_dir=data_dir).storage, name, scope, rate))


@key_commands.command("list")
def list_keys(data_dir: DataDirOption = None) -> None:
    """List the keys that are good: name, scopes, requests per second."""
    from service.workspace.client_keys import good_keys

    for key in good_keys(load_settings(data_dir=data_dir).storage):
        typer.echo(f"{key.name}\t{','.join(key.scopes)}\t{key.rate_per_s}/s")


@key_commands.command("revoke")
def revoke(name: NameArgument, data_dir: DataDirOption = None) -> None:
    """Revoke a key: within a second a service that runs refuses it."""
    from service.workspace.client_keys import revoke_key

    revoke_key(load_settings(data_dir=data_dir).storage, name)

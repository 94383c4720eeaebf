"""Options that several commands share, and output for people or for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
DataDirOption = Annotated[
    Path | None, typer.Option(help="Data directory of the service.", show_default="./sluice-data")
]


def sayer(as_json: bool) -> Callable[[str], None]:
    """Return a function that prints a line for people, and prints nothing with ``--json``."""
    return (lambda _: None) if as_json else typer.echo


def echo_for_programs(document: Mapping[str, Any], as_json: bool) -> None:
    """Print a document as one line of JSON if ``--json`` is given; otherwise print nothing."""
    if as_json:
        typer.echo(json.dumps(document, ensure_ascii=False))

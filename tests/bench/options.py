"""Options that benchmarks have in common."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

#: Where reports go that are part of the documentation.
DOCS = Path("docs/bench")

Out = Annotated[Path, typer.Option(help="Directory of the report.")]
Runs = Annotated[int, typer.Option(min=1, help="Runs; medians are reported.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes; times mean little.")]
ReportOnly = Annotated[bool, typer.Option("--report-only", help="Measure nothing, write the report again.")]


def chosen(names: Sequence[str] | None, known: Sequence[str], kind: str) -> list[str]:
    """Return the names that were asked for, all that there are where none was.

    Raises:
        typer.BadParameter: There is no such name.
    """
    if unknown := set(names or ()) - set(known):
        raise typer.BadParameter(f"no such {kind}: {', '.join(sorted(unknown))}; one of {', '.join(known)}")
    return list(names or known)

"""``sluice query results``: show a page of results, follow new results, or export all to a file."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from service.cli.client_cli import DEFAULT_URL, NameArgument, UrlOption, client

if TYPE_CHECKING:
    from service.cli.client import Client

#: With ``--follow``: maximum results per request, and seconds for which a request waits for a new result.
FOLLOWED_ROWS, FOLLOWED_WAIT_S = 10_000, 20


class RowsForm(StrEnum):
    """Form of result rows."""

    NDJSON = "ndjson"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"
    ARROW = "arrow"


#: Media type of each form of printed result rows.
MEDIA_TYPES: Final = {
    RowsForm.NDJSON: "application/x-ndjson",
    RowsForm.CSV: "text/csv",
    RowsForm.JSON: "application/json",
}


def query_results(
    name: NameArgument,
    after: Annotated[str | None, typer.Option(help="Cursor after which results begin.")] = None,
    limit: Annotated[
        int | None, typer.Option(help="Maximum number of rows to show.", show_default="100, all with --out")
    ] = None,
    form: Annotated[
        RowsForm, typer.Option("--format", help="Output format; parquet and arrow need --out.")
    ] = RowsForm.NDJSON,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print all results, and further ones until the query is removed.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", dir_okay=False, help="File to write all results so far to."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="With --out: cursor of the last row to write; by default, of the newest row."),
    ] = None,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Print the results so far, or write them to a file."""
    if out is not None:
        if form is RowsForm.JSON or follow or limit is not None:
            raise typer.BadParameter(
                "needs --format ndjson, csv, parquet or arrow, and excludes --follow and --limit",
                param_hint="--out",
            )
        export(client(url), name, after, until, form, out)
        return
    if form not in MEDIA_TYPES:
        raise typer.BadParameter(f"{form} needs --out FILE", param_hint="--format")
    if until is not None:
        raise typer.BadParameter("needs --out FILE", param_hint="--until")
    if follow:
        if form is RowsForm.JSON or limit is not None:
            raise typer.BadParameter(
                "needs --format ndjson or csv, and excludes --limit", param_hint="--follow"
            )
        for text in followed(client(url), name, after, form):
            typer.echo(text, nl=False)
        return
    params = {"after": after, "limit": limit}
    page = client(url).page(f"/queries/{name}/results", params=params, accept=MEDIA_TYPES[form])
    typer.echo(page.text, nl=False)
    if page.has_more:
        typer.echo(
            f"sluice: there are more results; continue with --after {page.next_cursor}, or print all with "
            "--follow",
            err=True,
        )


def export(
    service: Client, name: str, after: str | None, until: str | None, form: RowsForm, out: Path
) -> None:
    """Write all results between two cursors to a file, which appears once it is complete.

    Args:
        service: Client of the service.
        name: Name of the query.
        after: Cursor after which results begin; None begins with the first result.
        until: Cursor of the last result to write; None writes all results so far.
        form: Format of the file.
        out: The file; an existing file is replaced.
    """
    params = {"format": form.value, "after": after, "until": until}
    headers = service.download(f"/queries/{name}/results:export", params=params, file=out)
    told = f"sluice: {headers['Sluice-Rows']} results in {out}"
    reached = headers.get("Sluice-Next-Cursor")
    typer.echo(told if reached is None else f"{told}; for later results, use --after {reached}", err=True)


def followed(service: Client, name: str, after: str | None, form: RowsForm) -> Iterator[str]:
    """Yield present and future results of a query, until it is removed and all results are read.

    Args:
        service: Client of the service.
        name: Name of the query.
        after: Cursor after which results begin; None begins with the first result.
        form: Format, ndjson or csv. In CSV, a header line comes first, and again after an update of the query
            that changes the columns.
    """
    header = None
    while True:
        # The query's state is read before the page. If the query was already removed, it gets no more
        # results, so an empty page means the end.
        over = service.json("GET", f"/queries/{name}")["observed"] == "removed"
        params = {"after": after, "limit": FOLLOWED_ROWS, "wait": None if over else FOLLOWED_WAIT_S}
        page = service.page(f"/queries/{name}/results", params=params, accept=MEDIA_TYPES[form])
        head = page.text.partition("\n")[0] if form is RowsForm.CSV else None
        if page.next_cursor != after:
            yield page.text if head is None or head != header else page.text[len(head) + 1 :]
            header = head
        elif over:
            return
        after = page.next_cursor

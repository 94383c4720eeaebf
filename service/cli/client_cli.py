"""``sluice query ...`` and ``sluice stream ...``: the REST API from a shell."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from catalog.values.sink import SinkFormat
from service.cli.options import JsonOption, echo_for_programs
from service.cli.tables import record, table, terminal_width
from service.errors import UnreadableInput

if TYPE_CHECKING:
    from service.cli.client import Client

DEFAULT_URL = "http://127.0.0.1:8080"
#: Number of items requested per page of a collection.
PAGE = 500

UrlOption = Annotated[str, typer.Option(envvar="SLUICE_URL", help="Base URL of the service.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
SinkOption = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT:PATH|URL|JSON|@FILE|none",
        help="Additional destination of results: files (parquet:alerts, ndjson:alerts, csv:alerts), an http "
        "or https URL, a sink of the REST API as JSON or in a YAML or JSON file (@sink.yaml), or none.",
    ),
]
CqlArgument = Annotated[str | None, typer.Argument(metavar="[CQL]", show_default=False)]
FileOption = Annotated[
    str | None, typer.Option("--file", "-f", metavar="FILE", help="File with the CQL text; - is stdin.")
]
WaitOption = Annotated[float | None, typer.Option(help="Seconds to wait for the change to take effect.")]

query_commands = typer.Typer(help="Queries of the running service.", no_args_is_help=True)
stream_commands = typer.Typer(help="Streams of the running service.", no_args_is_help=True)


#: Heading of each table column by the field that the column shows.
_QUERY_COLUMNS = {
    "name": "NAME",
    "observed": "STATE",
    "results": "RESULTS",
    "sink.type": "SINK",
    "a.window": "WINDOW A",
    "b.window": "WINDOW B",
    "cql": "QUERY",
}
_STREAM_COLUMNS = {
    "name": "NAME",
    "source.type": "SOURCE",
    "event_time": "EVENT TIME",
    "lateness": "LATENESS",
    "idle_timeout": "IDLE AFTER",
    "columns": "COLUMNS",
}
_FILE_COLUMNS = {"path": "FILE", "reason": "REASON"}


def client(url: str) -> Client:
    """Return a client of the service at ``url``, with the key of ``SLUICE_KEY``."""
    from service.cli.client import Client  # imported only here, because it loads httpx, which takes 0.1 s

    return Client(url, os.environ.get("SLUICE_KEY"))


@query_commands.command("list")
def list_queries(as_json: JsonOption = False, url: UrlOption = DEFAULT_URL) -> None:
    """List the queries; with --json, print one object per line."""
    _echo_pages(client(url), "/queries", _QUERY_COLUMNS, as_json)


@query_commands.command("show")
def show_query(name: NameArgument, as_json: JsonOption = False, url: UrlOption = DEFAULT_URL) -> None:
    """Show one query."""
    _echo(client(url).json("GET", f"/queries/{name}"), as_json)


@query_commands.command("add")
def add_query(
    name: NameArgument,
    cql: CqlArgument = None,
    file: FileOption = None,
    backfill: Annotated[
        str, typer.Option(help="state also joins new rows with rows in the state, none does not.")
    ] = "none",
    sink: SinkOption = None,
    wait: WaitOption = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Add a query."""
    text = _required(_cql(cql, file))
    body: dict[str, Any] = {"name": name, "cql": text, "backfill": backfill} | _sink(sink)
    _echo(client(url).json("POST", "/queries", body=body, params={"wait": _seconds(wait)}), as_json)


@query_commands.command("update")
def update_query(
    name: NameArgument,
    cql: Annotated[str | None, typer.Argument(metavar="[CQL]", help="New text of the whole query.")] = None,
    file: FileOption = None,
    window: Annotated[
        list[str] | None, typer.Option(help="Window: 30s for both streams, or A=30s for one; repeatable.")
    ] = None,
    filter_: Annotated[
        list[str] | None,
        typer.Option("--filter", help="Filter: A=v < 0.3, or A= to remove it; repeatable."),
    ] = None,
    select: Annotated[str | None, typer.Option(help="Select list.")] = None,
    backfill: Annotated[
        str, typer.Option(help="state also joins new rows with rows in the state, none does not.")
    ] = "state",
    sink: SinkOption = None,
    wait: WaitOption = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Change a query's text, parts of its text, or its sink."""
    filters = {alias: text or None for alias, text in map(_named, filter_ or [])}
    parts = {
        "cql": _cql(cql, file),
        "window": _windows(window or []),
        "filter": filters or None,
        "select": select,
    }
    given: dict[str, Any] = {key: value for key, value in parts.items() if value is not None}
    body = given | {"backfill": backfill} | _sink(sink)
    _echo(client(url).json("PATCH", f"/queries/{name}", body=body, params={"wait": _seconds(wait)}), as_json)


@query_commands.command("pause")
def pause_query(
    name: NameArgument, wait: WaitOption = None, as_json: JsonOption = False, url: UrlOption = DEFAULT_URL
) -> None:
    """Take a query out of the plan until it is resumed."""
    _echo(client(url).json("POST", f"/queries/{name}:pause", params={"wait": _seconds(wait)}), as_json)


@query_commands.command("resume")
def resume_query(
    name: NameArgument,
    backfill: Annotated[
        str, typer.Option(help="state also joins new rows with rows in the state, none does not.")
    ] = "state",
    wait: WaitOption = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Resume a paused query, so that it joins again."""
    params = {"backfill": backfill, "wait": _seconds(wait)}
    _echo(client(url).json("POST", f"/queries/{name}:resume", params=params), as_json)


@query_commands.command("remove")
def remove_query(
    name: NameArgument, wait: WaitOption = None, as_json: JsonOption = False, url: UrlOption = DEFAULT_URL
) -> None:
    """Remove a query; its results stay readable."""
    _echo(client(url).json("DELETE", f"/queries/{name}", params={"wait": _seconds(wait)}), as_json)


@query_commands.command("validate")
def validate_query(
    cql: CqlArgument = None,
    file: FileOption = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Check a query's text without adding it."""
    text = _required(_cql(cql, file))
    _echo(client(url).json("POST", "/queries:validate", body={"cql": text}), as_json)


@stream_commands.command("list")
def list_streams(as_json: JsonOption = False, url: UrlOption = DEFAULT_URL) -> None:
    """List the streams; with --json, print one object per line."""
    _echo_pages(client(url), "/streams", _STREAM_COLUMNS, as_json)


@stream_commands.command("show")
def show_stream(name: NameArgument, as_json: JsonOption = False, url: UrlOption = DEFAULT_URL) -> None:
    """Show one stream."""
    _echo(client(url).json("GET", f"/streams/{name}"), as_json)


@stream_commands.command("add")
def add_streams(
    file: Annotated[
        Path, typer.Argument(metavar="FILE.yaml", help="One stream, or a workload file's streams.")
    ],
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Register the streams of a YAML or JSON file; relative paths start at the file's directory."""
    from service.documents.yaml_files.yaml_document import read_yaml

    value = read_yaml(file).value
    drafts = value.get("streams", [value]) if isinstance(value, dict) else value
    if not isinstance(drafts, list) or not all(isinstance(draft, dict) for draft in drafts):
        raise UnreadableInput(
            f'file "{file}" does not describe a stream', hint="Write name, columns, event_time and source."
        )
    service = client(url)
    for draft in drafts:
        source = draft.get("source")
        if isinstance(source, dict) and isinstance(source.get("path"), str):
            draft = {**draft, "source": {**source, "path": str(file.absolute().parent / source["path"])}}
        _echo(service.json("POST", "/streams", body=draft), as_json)


@stream_commands.command("remove")
def remove_stream(name: NameArgument, as_json: JsonOption = False, url: UrlOption = DEFAULT_URL) -> None:
    """Remove a stream that no query uses."""
    client(url).json("DELETE", f"/streams/{name}")
    echo_for_programs({"name": name, "removed": True}, as_json)


@stream_commands.command("retry")
def retry_files(name: NameArgument, as_json: JsonOption = False, url: UrlOption = DEFAULT_URL) -> None:
    """Retry a stream's files that were set aside, once you have corrected them under the same names.

    Prints the files, each with the reason why it was set aside.
    """
    answer = client(url).json("POST", f"/streams/{name}/files:retry")
    if as_json:
        _echo(answer, as_json)
    elif answer["files"]:
        typer.echo(table(iter(answer["files"]), _FILE_COLUMNS, terminal_width()))
    else:
        typer.echo("no file is set aside")


@stream_commands.command("send")
def send_events(
    name: NameArgument,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="JSON lines.", show_default="stdin")
    ] = None,
    as_json: JsonOption = False,
    url: UrlOption = DEFAULT_URL,
) -> None:
    """Post events to an http stream: either all are accepted, or none."""
    content = _content(file)
    answer = client(url).text("POST", f"/streams/{name}/events", content=content or b"\n")
    _echo(json.loads(answer), as_json)


def _content(file: Path | None) -> bytes:
    """Return the content of a file or of stdin."""
    try:
        return file.read_bytes() if file is not None else sys.stdin.buffer.read()
    except OSError as error:
        raise UnreadableInput(
            f'file "{file}" cannot be read', detail=f"{error.strerror or error}."
        ) from error


def _cql(text: str | None, file: str | None) -> str | None:
    """Return the CQL text given as an argument or in a file, or None if neither is given."""
    if file is None:
        return text
    if text is not None:
        raise UnreadableInput("the CQL text is given twice", hint="Give either the argument or --file.")
    try:
        return _content(None if file == "-" else Path(file)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableInput(f'file "{file}" is not UTF-8 text', detail=f"{error.reason}.") from error


def _required(text: str | None) -> str:
    if text is None:
        raise UnreadableInput(
            "there is no CQL text",
            hint="Give the text as an argument, or name the file that contains it: --file query.cql.",
        )
    return text


def _named(option: str) -> tuple[str, str]:
    """Split an option ``A=value`` into the stream's alias or name and the value."""
    alias, equals, value = option.partition("=")
    if not equals or not alias.strip():
        raise UnreadableInput(
            f'"{option}" does not name a stream', hint="Write the stream's alias or name first: A=30s."
        )
    return alias.strip(), value.strip()


def _sink(option: str | None) -> dict[str, Any]:
    """Return the part of a request body that ``--sink`` specifies; it is empty without the option."""
    if option is None:
        return {}
    if option == "none":
        return {"sink": None}
    if option.startswith("{"):
        return {"sink": _inline_sink(option)}
    if option.startswith("@"):
        return {"sink": _sink_of_file(Path(option[1:]))}
    kind, colon, rest = option.partition(":")
    if kind in ("http", "https") and colon:
        return {"sink": {"type": "webhook", "url": option}}
    if kind in get_args(SinkFormat) and rest:
        return {"sink": {"type": "files", "path": rest, "format": kind}}
    raise UnreadableInput(
        f'"{option}" is not a sink',
        hint="Write parquet:alerts, ndjson:alerts or csv:alerts, an http or https URL, "
        """'{"type": "files", "path": "alerts", "batches_per_file": 100}', @sink.yaml, or none.""",
    )


def _inline_sink(text: str) -> dict[str, Any]:
    """Return the sink in a JSON text; the service checks the sink's fields."""
    try:
        sink: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as error:  # valid JSON that begins with { is always an object
        raise UnreadableInput("the sink is not valid JSON", detail=f"{error}.") from error
    return sink


def _sink_of_file(file: Path) -> dict[str, Any]:
    """Return the sink in a YAML or JSON file, which keeps the sink's secret out of the process list."""
    from service.documents.yaml_files.yaml_document import read_yaml

    sink = read_yaml(file).value
    if not isinstance(sink, dict):
        raise UnreadableInput(
            f'file "{file}" does not describe a sink', hint="Write type and the settings of that type."
        )
    return sink


def _windows(options: list[str]) -> str | dict[str, str] | None:
    """Return the value of ``--window``: one length for both streams, or lengths by stream."""
    if len(options) == 1 and "=" not in options[0]:
        return options[0]
    return dict(map(_named, options)) or None


def _echo(document: Any, as_json: bool) -> None:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    typer.echo(text if as_json else record(document, terminal_width()))


def _echo_pages(service: Client, path: str, columns: Mapping[str, str], as_json: bool) -> None:
    """Print all items of a collection."""
    if as_json:
        for item in items(service, path):
            typer.echo(json.dumps(item, ensure_ascii=False))
    else:
        typer.echo(table(items(service, path), columns, terminal_width()))


def items(service: Client, path: str) -> Iterator[dict[str, Any]]:
    """Yield every item of a collection, page by page."""
    after: str | None = None
    while True:
        page = service.json("GET", path, params={"after": after, "limit": PAGE})
        yield from page["items"]
        if not page.get("has_more"):
            return
        after = page["next_cursor"]


def _seconds(wait: float | None) -> str | None:
    return None if wait is None else f"{wait:g}"

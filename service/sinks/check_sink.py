"""Invalid sinks are refused before anything is changed."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from catalog.values.sink import FilesSink, Sink, WebhookSink
from service.errors import InvalidSink

#: One name of a path: no hidden directory, and nothing that a shell, a URL or another system reads otherwise.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]*")
#: Well below what file systems allow, with room for the operator's own directory.
_MAX_PATH = 512
_MAX_NAME = 128
_MAX_URL = 2000


def check_sink(sink: Sink) -> None:
    """Refuse an invalid sink.

    Raises:
        InvalidSink: Its path leaves the directory of exports or has strange characters, or its URL is none of
            http or https; ``path`` says where.
    """
    if isinstance(sink, FilesSink):
        _check_path(sink)
    else:
        _check_url(sink)


def _check_path(sink: FilesSink) -> None:
    names = sink.path.split("/")
    if sink.path.startswith("/"):
        reason = "is not relative"
    elif ".." in names:
        reason = "leaves the directory of exports"
    elif len(sink.path) > _MAX_PATH or any(len(name) > _MAX_NAME for name in names):
        reason = "is too long"
    elif all(_NAME.fullmatch(name) for name in names):
        return
    else:
        reason = "is not allowed"
    raise InvalidSink(
        f'path "{sink.path}" {reason}',
        hint="Write names with / between them, each of letters, digits, _ . = and -, such as alerts/gusts.",
        path=("path",),
    )


def _check_url(sink: WebhookSink) -> None:
    try:
        parts = urlsplit(sink.url)
        # Asking for the port is what checks it.
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    plain = sink.url.isascii() and sink.url.isprintable() and " " not in sink.url
    if not known or not plain or len(sink.url) > _MAX_URL:
        raise InvalidSink(
            f'"{sink.url[:100]}" is not an http or https URL',
            hint="Write it whole, such as https://example.org/hooks/alerts.",
            path=("url",),
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidSink(
            "the URL has a user or password in it",
            detail="Everybody who may read queries could read it.",
            hint="Leave it out, and let a proxy add it.",
            path=("url",),
        )

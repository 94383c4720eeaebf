"""Refuses invalid sinks before any change is made."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from catalog.times.durations import format_duration
from catalog.values.sink import FilesSink, Sink, TableSink, TopicSink, WebhookSink
from service.errors import InvalidSink
from service.sinks.signature import signing_key
from service.sinks.webhook_headers import check_headers
from service.sinks.webhook_targets import WebhookTargets

#: Component of a path: not hidden, and without characters that are special in shells, URLs or other systems.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=-]*")
#: Maximum characters of a path: below the limits of file systems, with room for the operator's directory.
_MAX_PATH = 512
_MAX_NAME = 128
_MAX_URL = 2000
#: Maximum delay of a file, µs: far below the retention time, and longer than readers of files would wait.
_MAX_DELAY_US = 3_600_000_000


def check_sink(sink: Sink, targets: WebhookTargets) -> None:
    """Refuse an invalid sink.

    Raises:
        InvalidSink: The sink is invalid; the error's ``path`` names the field. Possible faults: a path that
            leaves the directory of exports or has forbidden characters; a ``max_delay`` that is too long, or
            set for files of one batch; a URL that is not http or https, or leads to this machine or a private
            network; a secret that cannot sign; a header that cannot be sent; a server that the operator does
            not allow.
    """
    if isinstance(sink, FilesSink):
        _check_path(sink)
        _check_delay(sink)
    elif isinstance(sink, TableSink):
        _check_servers((sink.server,), targets, "server")
    elif isinstance(sink, TopicSink):
        _check_servers(sink.cluster.servers, targets, "bootstrap")
    else:
        _check_url(sink)
        _check_target(sink, targets)
        _check_secret(sink)
        check_headers(sink)


def _check_servers(servers: Sequence[str], targets: WebhookTargets, field: str) -> None:
    """Refuse a broker or database that the operator has not allowed."""
    for server in servers:
        if server not in targets.servers and "*" not in targets.servers:
            raise InvalidSink(
                f'"{server}" is not a server that sinks may write to',
                hint="Have the operator name it in SLUICE_SERVERS.",
                path=(field,),
            )


def _check_target(sink: WebhookSink, targets: WebhookTargets) -> None:
    """Refuse an address that is not allowed; a host name is resolved and checked at each delivery."""
    host = urlsplit(sink.url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if not targets.allows(host, address):
        raise InvalidSink(
            f'"{host}" is an address of this machine or of a private network',
            hint="Post to a public address, or have the operator allow this one in SLUICE_WEBHOOK_HOSTS.",
            path=("url",),
        )


def _check_secret(sink: WebhookSink) -> None:
    """Refuse an invalid secret; the error does not repeat its text."""
    if sink.secret is None:
        return
    try:
        length = len(signing_key(sink.secret))
    except ValueError:
        length = 0
    if not 24 <= length <= 64:
        raise InvalidSink(
            "the secret does not consist of whsec_ and 24 to 64 bytes in base64",
            hint='Make one with: echo "whsec_$(openssl rand -base64 32)"',
            path=("secret",),
        )


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


def _check_delay(sink: FilesSink) -> None:
    if sink.max_delay_us and sink.batches_per_file == 1:
        raise InvalidSink(
            "a file of one batch cannot wait for more batches",
            hint='Give "batches_per_file", too, or leave "max_delay" out.',
            path=("max_delay",),
        )
    if sink.max_delay_us > _MAX_DELAY_US:
        raise InvalidSink(
            f"max_delay {format_duration(sink.max_delay_us)} is longer than an hour",
            hint="Write a length of time up to 1h.",
            path=("max_delay",),
        )


def _check_url(sink: WebhookSink) -> None:
    try:
        parts = urlsplit(sink.url)
        # Reading ``port`` checks it.
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
            "the URL contains a user or password",
            detail="Everybody who may read queries could read the URL.",
            hint="Leave user and password out, and let a proxy add them.",
            path=("url",),
        )

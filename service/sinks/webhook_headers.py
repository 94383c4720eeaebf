"""Headers that a webhook's receiver asks for, such as the token that lets a request in.

    {"X-Team": "alerts", "Authorization": {"env": "SLUICE_SECRET_HOOK"}}
      -> catalog, answers   as it is written: a secret by its name alone
      -> a request          X-Team: alerts
                            Authorization: Bearer 1f0c...     looked up in the environment for each request

Whoever may set sinks chooses the URL, and must not get a secret sent to a receiver of their own. So the
operator says where each secret may go: ``SLUICE_SECRET_HOOK_HOSTS=hooks.example.org``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from catalog.values.sink import WebhookSink
from catalog.values.stream import EnvSecret
from service.config.kafka_client import secret_value
from service.errors import InvalidSink, SinkFailed

_MAX_HEADERS: Final = 20
_MAX_CHARACTERS: Final = 4096
#: RFC 9110, 5.6.2.
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
#: Visible characters of ASCII, with spaces in between.
_VALUE: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
#: Headers that are Sluice's own, or of the connection.
_OWN: Final = re.compile(
    r"host|content-.*|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|proxy-.*"
    r"|idempotency-key|sluice-.*|webhook-.*",
    re.IGNORECASE,
)
#: Headers by which a receiver lets a request in: their values are nothing for the catalog.
_SECRET: Final = re.compile(
    r"authorization|cookie|.*(token|secret|password|api-?key|auth-?key)", re.IGNORECASE
)


def check_headers(sink: WebhookSink) -> None:
    """Refuse headers that cannot be sent, or that would show a secret; values are not repeated.

    Raises:
        InvalidSink: A name or value is no header's, a header is Sluice's own, there twice, or has a secret as
            text, or there are too many.
    """
    if len(sink.headers) > _MAX_HEADERS:
        raise InvalidSink(
            f"{len(sink.headers)} headers are more than {_MAX_HEADERS}",
            hint="Leave some out.",
            path=("headers",),
        )
    seen: set[str] = set()
    for name, value in sink.headers:
        reason, hint = _fault(name, value, seen)
        if reason:
            raise InvalidSink(f'header "{name[:100]}" {reason}', hint=hint, path=("headers", name))
        seen.add(name.lower())


def _fault(name: str, value: str | EnvSecret, seen: set[str]) -> tuple[str, str]:
    """Return what is wrong with a header and what to write; empty if nothing is."""
    if _NAME.fullmatch(name) is None:
        return "has a name that no header has", "Use letters, digits and -, at most 100, such as X-Team."
    if _OWN.fullmatch(name):
        return "is one that Sluice sends itself", "Leave it out, or give it another name."
    if name.lower() in seen:
        return "is there twice", "Case does not count in names of headers. Leave one out."
    if isinstance(value, EnvSecret):
        return "", ""
    if _SECRET.fullmatch(name):
        return (
            "carries a secret, and everybody who may read queries could read it",
            'Give the name of a variable of the service that holds the value, {"env": "SLUICE_SECRET_..."}.',
        )
    if not _is_value(value):
        return (
            "has a value that no header has",
            f"Use visible characters of ASCII with spaces between them, at most {_MAX_CHARACTERS}.",
        )
    return "", ""


def _is_value(value: str) -> bool:
    return len(value) <= _MAX_CHARACTERS and _VALUE.fullmatch(value) is not None


def sent_headers(sink: WebhookSink) -> Mapping[str, str]:
    """Return the headers of a sink as they are sent, with their secrets.

    Raises:
        SecretMissing: A secret is not there.
        SinkFailed: A secret cannot be a header's value, or may not be sent to this receiver.
    """
    host = (urlsplit(sink.url).hostname or "").lower()
    return {
        name: value if isinstance(value, str) else _secret(name, value, host) for name, value in sink.headers
    }


def _secret(name: str, secret: EnvSecret, host: str) -> str:
    variable = f"{secret.env}_HOSTS"
    allowed = {part.strip().lower() for part in os.environ.get(variable, "").split(",")}
    if host not in allowed:
        raise SinkFailed(
            f'"{secret.env}" may not be sent to "{host}"',
            hint=f"Have the operator name the host in {variable}.",
        )
    value = secret_value(secret)
    if not _is_value(value):
        raise SinkFailed(
            f'the value of "{secret.env}" cannot be sent as header "{name}"',
            hint="It must be visible characters of ASCII with spaces between them.",
        )
    return value


def without_secrets(text: str, sink: WebhookSink, sent: Mapping[str, str]) -> str:
    """Return what a receiver says, without the secrets that it may repeat."""
    for name, value in sink.headers:
        if isinstance(value, EnvSecret):
            for part in (sent[name], sent[name].rpartition(" ")[2]):
                text = text.replace(part, "***")
    return text

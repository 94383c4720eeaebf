"""Headers that a webhook's receiver requires, such as an authorization token.

    {"X-Team": "alerts", "Authorization": {"env": "SLUICE_SECRET_HOOK"}}
      -> catalog, answers   as written: a secret only by its name
      -> a request          X-Team: alerts
                            Authorization: Bearer 1f0c...     looked up in the environment for each request

Clients that may set sinks choose the URL, but must not be able to send a secret to their own receiver. So the
operator lists the hosts that may receive each secret: ``SLUICE_SECRET_HOOK_HOSTS=hooks.example.org``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from catalog.values.sink import WebhookSink
from catalog.values.stream import EnvSecret
from service.errors import InvalidSink, SinkFailed
from service.kafka.kafka_client import secret_value

_MAX_HEADERS: Final = 20
_MAX_CHARACTERS: Final = 4096
#: RFC 9110, 5.6.2.
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
#: Visible characters of ASCII, with spaces in between.
_VALUE: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
#: Headers that Sluice sets itself, or that belong to the connection.
_OWN: Final = re.compile(
    r"host|content-.*|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|proxy-.*"
    r"|idempotency-key|sluice-.*|webhook-.*",
    re.IGNORECASE,
)
#: Names of headers that authorize a request, without punctuation: their values must not be in the catalog.
_SECRET: Final = re.compile(
    r"auth(?!or(?!i[sz]))|cookie|token|secret|passw|passphrase|pwd|credential|bearer|jwt|session|signature"
    r"|(api|access|private|account|license|shared)key|key$"
)
#: Values that authorize a request, whatever the header's name.
_SECRET_VALUE: Final = re.compile(r"(bearer|basic|digest|token|apikey|negotiate)\s.*", re.IGNORECASE)


def check_headers(sink: WebhookSink) -> None:
    """Refuse headers that cannot be sent or would expose a secret; errors do not repeat values.

    Raises:
        InvalidSink: A name or value is invalid, a header is reserved, given twice or carries a secret as
            text, or there are too many headers.
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
    """Return the fault of a header and a hint, or two empty texts if there is no fault."""
    if _NAME.fullmatch(name) is None:
        return "has an invalid name", "Use at most 100 letters, digits and hyphens, such as X-Team."
    if _OWN.fullmatch(name.replace("_", "-")):  # some receivers take both for the same
        return "is reserved for Sluice", "Leave it out, or give it another name."
    if name.lower() in seen:
        return "is given twice", "Names of headers are case-insensitive. Leave one out."
    if isinstance(value, EnvSecret):
        return "", ""
    if _SECRET.search(re.sub(r"[^a-z0-9]", "", name.lower())) or _SECRET_VALUE.fullmatch(value):
        return (
            "carries a secret, which everybody who may read queries could read",
            'Name an environment variable of the service that holds the value, {"env": "SLUICE_SECRET_..."}.',
        )
    if not _is_value(value):
        return (
            "has an invalid value",
            f"Use at most {_MAX_CHARACTERS} visible ASCII characters, with spaces only between them.",
        )
    return "", ""


def _is_value(value: str) -> bool:
    return len(value) <= _MAX_CHARACTERS and _VALUE.fullmatch(value) is not None


def sent_headers(sink: WebhookSink) -> Mapping[str, str]:
    """Return the headers of a sink as they are sent, with their secrets.

    Raises:
        SecretMissing: A secret is not set.
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
            hint=f"Ask the operator to add the host to {variable}.",
        )
    value = secret_value(secret)
    if not _is_value(value):
        raise SinkFailed(
            f'the value of "{secret.env}" cannot be sent as header "{name}"',
            hint="The value must consist of visible ASCII characters, with spaces only between them.",
        )
    return value


def without_secrets(text: str, sink: WebhookSink, sent: Mapping[str, str]) -> str:
    """Return a receiver's text with the secrets that were sent to it masked."""
    for name, value in sink.headers:
        if isinstance(value, EnvSecret):
            for part in (sent[name], sent[name].rpartition(" ")[2]):
                text = text.replace(part, "***")
    return text

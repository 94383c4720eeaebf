"""Content negotiation for results by the ``Accept`` header (RFC 9110, section 12.5.1)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from api.errors import NotAcceptable

JSON = "application/json"
NDJSON = "application/x-ndjson"
CSV = "text/csv"
ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"

#: Media types of results, the preferred one first.
REPRESENTATIONS = (JSON, NDJSON, CSV, ARROW, PARQUET)

#: Other names of these media types that clients use.
_ALIASES = {"application/jsonl": NDJSON, "application/ndjson": NDJSON, "application/jsonlines": NDJSON}

_QUALITY = re.compile(r"q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)")


def negotiate(accept: str | None, offered: Sequence[str] = REPRESENTATIONS) -> str:
    """Return the offered media type that the client prefers.

    >>> negotiate("text/csv;q=0.5, application/x-ndjson")
    'application/x-ndjson'

    Args:
        accept: The header; None accepts everything.
        offered: Media types, the preferred one first.

    Raises:
        NotAcceptable: The client accepts none of the offered types.
    """
    ranges = _ranges(accept) if accept and accept.strip() else {"*/*": 1.0}
    wanted = {kind: _quality(kind, ranges) for kind in offered}
    best = max(offered, key=lambda kind: wanted[kind])
    if wanted[best] == 0:
        raise NotAcceptable(
            f'results are not available as "{accept}"', hint=f"Accept one of: {', '.join(offered)}."
        )
    return best


def _ranges(accept: str) -> dict[str, float]:
    """Return the quality of each media range."""
    ranges: dict[str, float] = {}
    for item in accept.split(","):
        media_range, *parameters = (part.strip().lower() for part in item.split(";"))
        qualities = [match[1] for text in parameters if (match := _QUALITY.fullmatch(text))]
        if media_range:
            ranges[_ALIASES.get(media_range, media_range)] = float(qualities[0]) if qualities else 1.0
    return ranges


def _quality(kind: str, ranges: dict[str, float]) -> float:
    """Return a media type's quality: the quality of the most specific range that includes the type."""
    for media_range in (kind, kind.split("/")[0] + "/*", "*/*"):
        if media_range in ranges:
            return ranges[media_range]
    return 0.0

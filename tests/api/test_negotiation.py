"""Which media type a client gets results in."""

from __future__ import annotations

import pytest

from api.errors import NotAcceptable
from api.results.negotiation import ARROW, CSV, JSON, NDJSON, PARQUET, negotiate


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (None, JSON),
        ("", JSON),
        ("*/*", JSON),
        ("text/csv", CSV),
        ("TEXT/CSV; charset=utf-8", CSV),
        ("text/*", CSV),
        ("application/*", JSON),
        ("application/jsonl", NDJSON),
        ("application/json;q=0.5, application/x-ndjson", NDJSON),
        ("application/json;q=0, */*;q=0.1", NDJSON),
        ("application/vnd.apache.parquet", PARQUET),
        ("text/html, application/vnd.apache.arrow.stream;q=0.9, */*;q=0.1", ARROW),
    ],
)
def test_the_representation_that_is_liked_best_is_chosen(accept: str | None, kind: str) -> None:
    assert negotiate(accept) == kind


@pytest.mark.parametrize("accept", ["application/xml", "text/csv;q=0", "image/*"])
def test_a_representation_that_there_is_not_is_refused(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="results are not available as"):
        negotiate(accept)

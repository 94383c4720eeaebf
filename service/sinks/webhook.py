"""Results posted to a URL: NDJSON, part by part, each with a key by which a receiver knows it again.

    POST <url>
    Content-Type: application/x-ndjson
    Sluice-Query: gusts
    Sluice-Batch: 42
    Sluice-Cursor: 42.250             the cursor after the last row, as GET /queries/gusts/results gives it
    Idempotency-Key: sluice-17-42.0   series, batch and first row: the same part has the same rows and key

Any 2xx takes a part. After any other answer, or none, it is sent again later; so a part can come twice, but
never out of order, and none is left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx

from catalog.values.sink import SinkRecord, WebhookSink
from service.errors import SinkFailed
from service.results.result_formats import ndjson
from service.results.results import ResultPage

#: A receiver that takes longer is better off answering first and working afterwards.
TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 3.0


class Webhooks:
    """Posts parts of results; safe to use from many threads."""

    def __init__(self) -> None:
        timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        # Redirects are not followed: results go where the query says, and nowhere else.
        self._http = httpx.Client(timeout=timeout, follow_redirects=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def post(self, record: SinkRecord, sink: WebhookSink, page: ResultPage) -> None:
        """Post a page that has results of one batch.

        Raises:
            SinkFailed: The receiver did not take it.
        """
        headers = part_headers(record, page)
        try:
            response = self._http.post(sink.url, content=ndjson(page.table), headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise SinkFailed(
                f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            ) from error
        if not response.is_success:
            raise SinkFailed(
                f"the receiver answered {response.status_code} {response.reason_phrase}".rstrip()
            )


def part_headers(record: SinkRecord, page: ResultPage) -> Mapping[str, str]:
    """Return the headers of a part."""
    (span,) = page.spans
    return {
        "Content-Type": "application/x-ndjson",
        "Sluice-Query": record.query,
        "Sluice-Batch": str(span.batch),
        "Sluice-Cursor": str(page.next_cursor),
        "Idempotency-Key": f"sluice-{record.series}-{span.batch}.{span.first}",
    }

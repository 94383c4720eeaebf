"""The load process: posts both streams, paced by the clock.

    python -m tests.bench.soak.load ROOT DIRECTORY START_US RATE_PER_S SECONDS

A request holds the rows whose time has come since the one before. ``posted-A.bin`` and ``posted-B.bin`` keep
of each the number of its first row, the number after its last, and the wall clock, µs, when it was sent and
when it was acknowledged.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np

from tests.bench.soak.rows import STREAMS, SoakRows

#: Between two requests of a stream, and most rows of one where the service was slow.
_EVERY_S = 0.1
_MOST_ROWS = 5_000
_TIMEOUT_S = 120.0
#: Columns of what is kept of requests.
POSTED = np.dtype([("first", "<i8"), ("end", "<i8"), ("sent_us", "<i8"), ("acknowledged_us", "<i8")])


def post(root: str, directory: Path, rows: SoakRows, stream: str, total: int) -> None:
    """Post rows of a stream until so many were acknowledged.

    Raises:
        RuntimeError: The service gave them other offsets than their numbers.
    """
    headers = {"Content-Type": "application/json"}
    with (
        posted_file(directory, stream).open("wb") as kept,
        httpx.Client(base_url=root, timeout=_TIMEOUT_S, headers=headers) as http,
    ):
        first = 0
        while first < total:
            due = int((time.time() - rows.start_us / 1e6) * rows.rate_per_s)
            end = min(max(due, 0), first + _MOST_ROWS, total)
            if end > first:
                body, sent_us = rows.body(stream, first, end), time.time_ns() // 1000
                answer = http.post(f"/streams/{stream}/events", content=body).raise_for_status().json()
                if (answer["first_offset"], answer["last_offset"]) != (first, end - 1):
                    raise RuntimeError(f"rows {first} to {end - 1} of {stream} were acknowledged as {answer}")
                np.array([(first, end, sent_us, time.time_ns() // 1000)], POSTED).tofile(kept)
                kept.flush()
                first = end
            if due - first < _EVERY_S * rows.rate_per_s:
                time.sleep(_EVERY_S)


def posted_file(directory: Path, stream: str) -> Path:
    """Return the file of a stream's requests."""
    return directory / f"posted-{stream}.bin"


def read_posted(directory: Path, stream: str) -> np.ndarray:
    """Return what is known of a stream's requests, in order."""
    return np.fromfile(posted_file(directory, stream), POSTED)


def main() -> None:
    """Post both streams at the same time."""
    root, directory, start_us, rate_per_s, seconds = sys.argv[1:]
    rows, total = SoakRows(int(start_us), int(rate_per_s)), int(rate_per_s) * int(seconds)
    with ThreadPoolExecutor(len(STREAMS)) as posters:
        for done in [posters.submit(post, root, Path(directory), rows, s, total) for s in STREAMS]:
            done.result()


if __name__ == "__main__":
    main()

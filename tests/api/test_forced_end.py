"""A service whose threads wait for what never comes stops all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: A process that serves nothing and never leaves its shutdown.
STUCK = """
import asyncio, threading
from api import serve
serve.FORCE_S = 1
async def app(scope, receive, send):
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    threading.Event().wait()
async def main():
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    async def receive():
        return next(messages)
    async def send(message):
        pass
    await serve._Startup(app, lambda: None, ends_process=True)({"type": "lifespan"}, receive, send)
asyncio.run(main())
"""


def test_a_stop_that_hangs_ends_by_force_and_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUCK],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        timeout=180,
    )
    assert done.returncode == 1
    assert "the service did not stop in time and ends" in done.stderr

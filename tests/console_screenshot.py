"""The picture of the console in README: the plan of the demo, a while after its start.

python -m tests.console_screenshot [FILE]
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
from playwright.sync_api import Page

from tests.api.running_service import START_TIMEOUT_S, free_port
from tests.browser import launched
from tests.sluice_run import command

TARGET = Path(__file__).parents[1] / "docs" / "console.png"
#: Slow enough for the widest windows to hold rows, fast enough for rates that one can see.
SPEED = "14400"
WATCHED_S = 20
HELD_ROWS = 60
#: Pictures stay small in the repository.
MOST_BYTES = 300_000


def take(target: Path) -> None:
    """Run the demo, look at its plan with a query pointed at, and keep what is seen."""
    port = free_port()
    root = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        started = command(
            "demo", "--speed", SPEED, "--port", str(port), "--data-dir", str(Path(directory) / "demo")
        )
        demo = subprocess.Popen(started, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            _wait_for_rows(root)
            with launched() as browser:
                page = browser.new_page(viewport={"width": 1280, "height": 860})
                page.goto(f"{root}/console/#/plan")
                page.wait_for_timeout(WATCHED_S * 1000)
                page.locator(".query-row").filter(has_text="just_escaped").hover()
                _wait_for_held(page)
                page.screenshot(path=target)
        finally:
            demo.send_signal(signal.SIGINT)  # as Ctrl-C, which it expects
            try:
                demo.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(demo.pid, signal.SIGKILL)  # the session is its own, with its JVM
                demo.wait()
    assert target.stat().st_size < MOST_BYTES, f"{target} has {target.stat().st_size} bytes"


def _wait_for_held(page: Page) -> None:
    """Wait for a moment with rows of both streams, which at this speed come and go."""
    for _ in range(600):
        held = page.locator(".stream").all_text_contents()
        rows = [int(found[1]) for text in held if (found := re.search(r"Held(\d+) rows", text))]
        if len(rows) == 2 and rows[0] >= HELD_ROWS and rows[1] > 0:
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"no moment with {HELD_ROWS} rows held: {held}")


def _wait_for_rows(root: str) -> None:
    deadline = time.monotonic() + 2 * START_TIMEOUT_S
    while True:
        try:
            if httpx.get(f"{root}/api/v1/statistics").json()["state_rows"]:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, "the demo has read no rows"
        time.sleep(1)


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET)

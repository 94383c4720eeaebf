"""A headless Chromium for tests: the one of the system, driven by Playwright.

Playwright's own browsers come from a server that is not a package registry; Debian has a package `chromium`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: Without them Chromium looks for its maker's hosts at every start.
_OPTIONS = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


def chromium() -> str | None:
    """Return the path of the system's Chromium, None where there is none."""
    return next((found for name in _NAMES if (found := shutil.which(name)) is not None), None)


@contextmanager
def launched() -> Iterator[Browser]:
    """Start a browser for as long as the block runs."""
    from playwright.sync_api import sync_playwright

    path = chromium()
    assert path is not None, "no Chromium was found; `make browser` installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_OPTIONS))
        try:
            yield browser
        finally:
            browser.close()


if __name__ == "__main__":
    where = chromium()
    if where is None:
        sys.exit("error: no Chromium was found; on Debian: apt-get install chromium")
    version = subprocess.run([where, "--version"], capture_output=True, text=True, check=True)
    print(f"sluice: {version.stdout.strip()} at {where}", file=sys.stderr)

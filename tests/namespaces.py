"""Tests that mount: where a plain user runs them, each runs in a user namespace of its own.

Such a test has the marker ``mounts``. Root mounts as it is. A plain user may do so in a namespace in which it
keeps its number, but a process that has threads cannot enter one, so the test is run by another pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pyroute2 import IPRoute

#: Tells the pytest within that it is there.
_WITHIN = "SLUICE_TEST_MOUNTS"
_APART = ("unshare", "--user", "--mount", "--net", "--map-current-user", "--keep-caps")
#: How many characters of its output are shown.
_TOLD = 8_000
_LOOPBACK = 1


def enter() -> None:
    """Let the loopback of a new namespace be used, where this process is in one."""
    if _WITHIN in os.environ:
        with IPRoute() as route:
            route.link("set", index=_LOOPBACK, state="up")


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that mounts elsewhere where this process may not mount; True says that it has run."""
    if pyfuncitem.get_closest_marker("mounts") is None or os.geteuid() == 0 or _WITHIN in os.environ:
        return None
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | {_WITHIN: "1"}
    command = (*_APART, sys.executable, "-m", "pytest", "-q", "-m", "", pyfuncitem.nodeid)
    done = subprocess.run(
        command, cwd=pyfuncitem.config.rootpath, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.fail(f"{done.stdout[-_TOLD:]}{done.stderr[-_TOLD:]}", pytrace=False)
    return True

"""The runbook on a bare Debian: systemd, a backup, a move to PostgreSQL; then all processes are killed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.bare_root import make_root, registries
from tests.deploy.files import ROOT
from tests.deploy.killed_units import UNITS
from tests.deploy.runbook import blocks
from tests.deploy.systemd_machine import booted, install, run_in

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(3600)]

PACKAGES = ("systemd-sysv", "dbus", "sudo", "python3")
CHECKOUT = "/root/sluice"


@pytest.fixture
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("machine")
    root = directory / "root"
    make_root(root, PACKAGES)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, tracked.decode().split("\0")):
        target = Path(f"{root}{CHECKOUT}") / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, target)
    yield root
    shutil.rmtree(directory)  # gigabytes


def in_its_network(leader: int, module: str) -> str:
    """Run a module of the tests in the network of the machine, and return its output."""
    command = ["nsenter", "--net", f"--target={leader}", sys.executable, "-m", module, str(leader)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stderr[-3000:]}{run_in(leader, 'journalctl --no-pager --lines=200')}"
    return done.stdout


def test_the_runbook_leads_to_a_service_that_loses_nothing(root: Path) -> None:
    (*installing, start), (package, *_), *_ = blocks("systemd")
    install(root, "\n".join([f"cd {CHECKOUT}", *installing, package]), registries())

    with booted(root) as leader:
        run_in(leader, f"cd {CHECKOUT} && {start}")
        in_its_network(leader, "tests.deploy.kept_units")
        run_in(leader, "systemctl enable --now sluice-engine@2")
        found = json.loads(in_its_network(leader, "tests.deploy.killed_units"))

    assert found["results"] > 1000
    assert all(found["restarts"][unit] for unit in UNITS if unit.startswith("sluice")), found

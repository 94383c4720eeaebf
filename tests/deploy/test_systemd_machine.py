"""The runbook's way to systemd on a bare Debian with PostgreSQL; then all processes are killed under load."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.bare_root import make_root, registries
from tests.deploy.files import DEPLOY, ROOT
from tests.deploy.killed_units import UNITS
from tests.deploy.systemd_machine import booted, install, run_in

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(3600)]

PACKAGES = ("systemd-sysv", "dbus", "sudo", "python3")
CHECKOUT = "/root/sluice"


def commands() -> tuple[list[str], list[str]]:
    """Return the commands of the runbook's section: those that install, and those of PostgreSQL."""
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    section = text.partition("\n## systemd\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"(?:^    .+\n)+", section, re.MULTILINE)
    installing, database, *_ = [[line.strip() for line in block.splitlines()] for block in blocks]
    return installing, database


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


def test_the_runbook_leads_to_a_service_that_loses_nothing(root: Path) -> None:
    (*installing, start), (package, *database) = commands()
    install(root, "\n".join([f"cd {CHECKOUT}", *installing, package]), registries())

    with booted(root) as leader:
        for command in (*database, start):
            run_in(leader, f"cd {CHECKOUT} && {command}")
        run_in(leader, "systemctl enable --now sluice-engine@2")
        load = [sys.executable, "-m", "tests.deploy.killed_units", str(leader)]
        done = subprocess.run(
            ["nsenter", "--net", f"--target={leader}", *load], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, (
            f"{done.stderr[-3000:]}{run_in(leader, 'journalctl --no-pager --lines=200')}"
        )

    found = json.loads(done.stdout)
    assert found["results"] > 1000
    assert all(found["restarts"][unit] for unit in UNITS if unit.startswith("sluice")), found

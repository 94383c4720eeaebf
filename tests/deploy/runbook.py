"""Commands of the runbook, as they stand in it."""

from __future__ import annotations

import re

from tests.deploy.files import DEPLOY


def blocks(section: str) -> list[list[str]]:
    """Return the commands of each block of a section, without comments; lines that go on are one command."""
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    found = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [_commands(block) for block in re.findall(r"(?:^ {4,}.+\n)+", found, re.MULTILINE)]


def of_systemd(section: str) -> list[str]:
    """Return the commands of a section that are for a machine with systemd."""
    commands = [command for block in blocks(section) for command in block]
    return [each for each in commands if each.startswith("sudo") or "| sudo" in each]


def _commands(block: str) -> list[str]:
    lines = re.sub(r" \\\n +", " ", block).splitlines()
    return [re.sub(r" {2,}# .*$", "", line).strip() for line in lines]

"""Commands of the runbook, as they stand in it."""

from __future__ import annotations

import re

from tests.deploy.files import DEPLOY

#: Ways in which the runbook starts a command of Sluice: installed, in a pod, in an image, in compose.
_OF_SLUICE = re.compile(r"(?:bin/sluice|(?:--|&&) sluice|sluice:\S+|run --rm -T api) (\w[^|>&']*)")


def blocks(section: str | None = None) -> list[list[str]]:
    """Return the commands of each block, without comments; lines that go on are one command.

    Args:
        section: Heading of the section; None for all of the runbook.
    """
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    found = text if section is None else text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return [_commands(block) for block in re.findall(r"(?:^ {4,}.+\n)+", found, re.MULTILINE)]


def of_systemd(section: str) -> list[str]:
    """Return the commands of a section that are for a machine with systemd."""
    commands = [command for block in blocks(section) for command in block]
    return [each for each in commands if each.startswith("sudo") or "| sudo" in each]


def of_sluice() -> list[str]:
    """Return the arguments of all commands of Sluice, wherever they run."""
    commands = [command for block in blocks() for command in block]
    return sorted({found.strip() for command in commands for found in _OF_SLUICE.findall(command)})


def _commands(block: str) -> list[str]:
    lines = re.sub(r" \\\n +", " ", block).splitlines()
    return [re.sub(r" {2,}# .*$", "", line).strip() for line in lines]

"""The runbook: its links lead somewhere, and settings, errors and panels that it names are there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from api.main import app
from service.config.settings import GROUPS
from tests.deploy.files import DEPLOY, ROOT, anchors
from tests.deploy.runbook import of_sluice

RUNBOOK = DEPLOY / "README.md"
TEXT = RUNBOOK.read_text(encoding="utf-8")
LINKS = sorted(set(re.findall(r"\]\(([^)]+)\)", TEXT)))


@pytest.mark.parametrize("link", LINKS)
def test_a_link_leads_somewhere(link: str) -> None:
    file, _, anchor = link.partition("#")
    page = (RUNBOOK.parent / file).resolve() if file else RUNBOOK
    assert page.is_relative_to(ROOT)
    if anchor:
        assert anchor in anchors(page.read_text(encoding="utf-8"))
    else:
        assert page.exists()


def test_settings_are_settings() -> None:
    named = set(re.findall(r"\bSLUICE_([A-Z_]+)", TEXT))
    assert named
    assert {name for name in named if name.lower() not in GROUPS} == set()


@pytest.mark.parametrize("arguments", of_sluice())
def test_a_command_of_sluice_is_one(arguments: str) -> None:
    words = arguments.split()
    command = get_command(app)
    while isinstance(command, TyperGroup):
        command = command.commands[words.pop(0)]
    command.make_context(arguments, words).close()


def test_commands_for_containers_and_pods_are_found() -> None:
    assert {"catalog upgrade", "key create prometheus --scope read", "restore /data/backup/monday"} <= set(
        of_sluice()
    )


def test_files_of_the_folder_are_there() -> None:
    table = TEXT.partition("| here | what it is |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `([^`]+)`", table, re.MULTILINE)
    assert all((DEPLOY / row).exists() for row in rows)
    parts = {Path(row).parts[0] for row in rows}
    assert parts == {
        p.name for p in DEPLOY.iterdir() if p.name not in ("README.md", ".env.example", ".env", "secrets")
    }


def test_panels_are_panels_of_the_dashboard() -> None:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "sluice.json").read_text(encoding="utf-8"))
    titles = {panel["title"] for panel in dashboard["panels"]} | {dashboard["title"]}
    named = set(re.findall(r"(?<!\*)\*([A-Z][^*\n]+)\*(?!\*)", TEXT))
    assert named
    assert named <= titles

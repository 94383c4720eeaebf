"""The snippets of docs/client.md run, one after the other, against a real service."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.api.running_service import RunningService

PAGE = Path(__file__).parents[3] / "docs" / "client.md"


def test_the_snippets_of_the_page_run(service: RunningService, capsys: pytest.CaptureFixture[str]) -> None:
    text = PAGE.read_text(encoding="utf-8")
    snippets = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(snippets) >= 6
    names: dict[str, object] = {}
    said = []
    for snippet in snippets:
        exec(snippet.replace("http://127.0.0.1:8080", service.root), names)
        said.append(capsys.readouterr().out)
    assert said[2] == "1 19.9 2026-01-01 12:30:00+00:00\n"
    # The page shows what the last one prints.
    shown = "".join(f"    {line}\n" for line in said[-1].splitlines())
    assert shown in text
    exec("client.change([changes.remove('soon')]); client.close()", names)

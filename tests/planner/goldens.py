"""Golden files: cases apart by blank lines, each a question, ``----`` and the answer.

Lines of a question that start with ``#`` give the reason of the case. ``make golden`` rewrites the answers.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path
from typing import Any

import yaml

RULE = "----"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines line by line, and each value where it stands."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def readable(document: Any) -> str:
    """Return a JSON document as YAML: lists of plain values on one line, carets below the text."""
    text = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, width=110, default_flow_style=None, allow_unicode=True
    )
    return text.rstrip("\n")


def check_golden(path: Path, answer: Callable[[list[str]], str], *, rewrite: bool) -> None:
    """Compare a golden file with what ``answer`` says now to the lines of each of its questions."""
    text = path.read_text(encoding="utf-8")
    now = "\n\n".join(_answered(case, answer) for case in text.rstrip("\n").split("\n\n")) + "\n"
    if rewrite:
        path.write_text(now, encoding="utf-8")
    changed = "\n".join(unified_diff(text.splitlines(), now.splitlines(), lineterm="", n=1))
    assert rewrite or not changed, f"{path.name}: if the new text is right, run make golden\n{changed}"


def _answered(case: str, answer: Callable[[list[str]], str]) -> str:
    question = case.split(f"\n{RULE}")[0].splitlines()
    return "\n".join([*question, RULE, answer([line for line in question if not line.startswith("#")])])

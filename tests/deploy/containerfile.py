"""Instructions of a Containerfile, and the commands of its RUN steps."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a Containerfile.

    Attributes:
        name: Such as ``RUN``.
        text: What stands behind it, on one line.
        stage: Number of its stage, from 0.
    """

    name: str
    text: str
    stage: int

    @property
    def arguments(self) -> list[str]:
        """Arguments of an instruction in JSON form (``CMD ["serve"]``)."""
        found: list[str] = json.loads(self.text[self.text.index("[") :])
        return found


def instructions(containerfile: Path) -> list[Instruction]:
    """Return the instructions of a Containerfile in their order."""
    lines = containerfile.read_text(encoding="utf-8").splitlines()
    whole = "\n".join(line for line in lines if not line.startswith("#"))
    found: list[Instruction] = []
    stage = -1
    for line in re.sub(r"\\\n\s*", "", whole).splitlines():
        if line:
            name, _, text = line.partition(" ")
            stage += name == "FROM"
            found.append(Instruction(name, text, stage))
    return found

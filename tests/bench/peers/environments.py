"""Virtual environments of the peers that need one: made once, from PyPI, with pinned versions."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

#: Ignored by git: environments here, inputs beside them.
ROOT = Path(".bench")
_REQUIREMENTS = Path(__file__).parent
_STAMP = "installed.txt"


class NotInstalled(Exception):
    """A peer's packages cannot be installed here."""


@cache
def interpreter(name: str) -> Path:
    """Return the Python of an environment, which is made, or made anew, where its requirements changed.

    Args:
        name: Of the environment and of its requirements, ``<name>.txt`` beside this module.

    Raises:
        NotInstalled: pip did not manage.
    """
    requirements = (_REQUIREMENTS / f"{name}.txt").read_text(encoding="utf-8")
    directory = (ROOT / name).resolve()
    python, stamp = directory / "bin" / "python", directory / _STAMP
    if stamp.exists() and stamp.read_text(encoding="utf-8") == requirements:
        return python
    print(f"installing {', '.join(requirements.split())} ...", flush=True)
    _do([sys.executable, "-m", "venv", "--clear", str(directory)])
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    _do([*pip, "-r", str(_REQUIREMENTS / f"{name}.txt")])
    stamp.write_text(requirements, encoding="utf-8")
    return python


def _do(command: list[str]) -> None:
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        raise NotInstalled(outcome.stderr.strip()[-2000:] or f"exit status {outcome.returncode}")

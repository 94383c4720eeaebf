"""The notebook of docs/ runs against a real service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.api.running_service import WAIT_S, RunningService

NOTEBOOK = Path(__file__).parents[3] / "docs" / "client.ipynb"
EXECUTE = Path(sys.executable).with_name("jupyter-execute")


def test_the_notebook_runs(service: RunningService, tmp_path: Path) -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs")] == [], "it is kept without outputs"
    # Files of the kernel, such as its history and sockets, stay in the test's directory.
    alone = {"SLUICE_URL": service.root, "IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(
        [EXECUTE, NOTEBOOK, f"--output={tmp_path / 'executed'}"],
        env=os.environ | alone,
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    executed = (tmp_path / "executed.ipynb").read_text(encoding="utf-8")
    assert "queries soon within_hour" in executed
    assert "shoes" in executed

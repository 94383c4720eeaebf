"""What the service loads before its first answer: half of what it needs in all, the rest comes beside it."""

from __future__ import annotations

import subprocess
import sys

#: Loaded by the thread that runs the job (``service.engine.engine``), or by the first query.
LATER = ("numba", "pandas", "scipy", "pyspark", "py4j")


def test_the_api_is_there_before_spark_and_the_kernels_are_loaded() -> None:
    code = f"import sys, api.serve, api.app; print([name for name in {LATER} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"

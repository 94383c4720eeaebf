from __future__ import annotations

import subprocess
import sys


def test_readers_load_neither_spark_nor_the_database() -> None:
    code = (
        "import sys\n"
        "import service.job.admission.admission, service.inputs.inputs, service.inputs.reading.read\n"
        "print([m for m in ('pyspark', 'sqlalchemy', 'duckdb', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""What a worker frees it uses again, instead of giving it back to the system page by page."""

import subprocess
import sys

_FAULTS = """
import resource, sys
import numpy as np
import pyarrow as pa
from service.worker_daemon import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
index = np.arange(1_000_000)
rows, where = pa.array(index), pa.array(index)

def batch():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    taken, summed = rows.take(where), index + index
    del taken, summed
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print([batch() for _ in range(5)][-1])
"""


def page_faults_of_a_later_batch(kept: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", _FAULTS, kept],
        capture_output=True,
        check=True,
        text=True,
        env={"NUMPY_MADVISE_HUGEPAGE": "0"},
    )
    return int(done.stdout)


def test_batches_after_the_first_use_memory_that_is_there() -> None:
    # Sixteen megabytes in pages of 4 kB, half of them numpy's and half Arrow's.
    assert page_faults_of_a_later_batch("as it was") > 1_500
    assert page_faults_of_a_later_batch("kept") < 200

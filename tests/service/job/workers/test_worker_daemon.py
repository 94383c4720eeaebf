"""What a worker frees it uses again, instead of giving it back to the system page by page."""

import subprocess
import sys

import pytest

#: Prints the page faults of a batch that holds 160 MB, 8 at a time, and Arrow's allocator. The median of five
#: batches: something small can lie in 8 MB of the place that was freed, and the batch takes 8 MB elsewhere
#: that are new (1,953 faults).
_BATCHES = """
import resource, sys
import numpy as np
import pyarrow as pa
from service.job.workers.worker_daemon import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
index = np.arange(1_000_000)
rows, where = pa.array(index), pa.array(index)

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    held = [index + n if sys.argv[2] == "numpy" else rows.take(where) for n in range(20)]
    del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(sorted([faults() for _ in range(9)][4:])[2], pa.default_memory_pool().backend_name)
"""


def faults_and_allocator(*arguments: str) -> tuple[int, str]:
    # Huge pages would be few faults, and as much memory to be zeroed.
    done = subprocess.run(
        [sys.executable, "-c", _BATCHES, *arguments],
        capture_output=True,
        check=True,
        text=True,
        env={"NUMPY_MADVISE_HUGEPAGE": "0"},
    )
    faults, allocator = done.stdout.split()
    return int(faults), allocator


@pytest.mark.slow
@pytest.mark.parametrize("library", ["numpy", "arrow"])
def test_batches_after_the_first_ones_use_memory_that_is_there(library: str) -> None:
    faults, allocator = faults_and_allocator("kept", library)
    assert faults < 5_000
    assert allocator == "system"


@pytest.mark.slow
def test_left_alone_the_c_library_gives_back_what_a_batch_held() -> None:
    faults, _ = faults_and_allocator("as it was", "numpy")
    assert faults > 20_000

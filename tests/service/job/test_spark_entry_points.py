"""What planning processes import, and that stand-ins do what they stand for."""

import pickle
import subprocess
import sys

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from service.commit.reports import ReportAddress
from service.job.chain_processor import ChainOptions
from service.job.spark_entry_points import ChainEntryPoint, SourceEntryPoint
from service.results.files.result_files import ResultWriter

OPTIONS = {
    "bucket_keys": "0,1",
    "max_rows": "7",
    "catalog_url": "sqlite:///none.db",
    "events_url": "sqlite:///none.db",
    "data_dir": ".",
}


@pytest.mark.parametrize(
    "entry_point",
    [
        SourceEntryPoint(OPTIONS),
        SourceEntryPoint(OPTIONS).streamReader(None),
        ChainEntryPoint(
            ChainOptions("c", (0, 1), "segments", 1, "lock", ResultWriter("results", None, 1)),
            ReportAddress("name", None, b"key"),
        ),
    ],
)
def test_unpickling_a_stand_in_loads_nothing_of_what_does_the_work(entry_point: object) -> None:
    code = (
        "import pickle, sys; pickle.loads(sys.stdin.buffer.read());"
        "print([name for name in ('numba', 'pandas', 'pyarrow', 'sqlalchemy') if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(entry_point), capture_output=True, check=True
    )

    assert done.stdout.decode() == "[]\n"


def test_a_reader_that_has_read_is_pickled_without_what_it_loaded() -> None:
    reader = SourceEntryPoint(OPTIONS).streamReader(None)
    before = pickle.dumps(reader)

    assert reader.initialOffset() == {"batch": 0, "control": 0}
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)

    assert pickle.dumps(reader) == before

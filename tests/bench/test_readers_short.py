"""The benchmark of readers, once and short: it reads all rows, in every format and size of pages."""

import pytest

from tests.bench.readers import FORMATS, PAGE_SIZES, main, measured


def test_readers_are_measured() -> None:
    lines = list(measured(240, 3, 1_000))

    assert [line[:2] for line in lines] == [(f, size) for f in FORMATS for size in PAGE_SIZES]
    assert all(first_ms > 0 and all_rows_per_s > 0 for _, _, first_ms, _, all_rows_per_s in lines)


@pytest.mark.bench
@pytest.mark.timeout(3600)
def test_readers_of_two_million_results() -> None:
    """What `make bench-readers` prints, as a part of `make bench`."""
    main()

"""The benchmark of readers, once and short: it reads all rows, in every format and size of pages."""

import pytest

from tests.bench.readers import FORMATS, PAGE_SIZES, line, main, measured


def test_readers_are_measured() -> None:
    figures = list(measured(240, 3, 1_000))

    assert [(f.form, f.page_rows) for f in figures] == [(f, size) for f in FORMATS for size in PAGE_SIZES]
    assert all(f.first_ms > 0 and f.all_rows_per_s > 0 for f in figures)
    assert line(figures[0])[:2] == ("Arrow", "100")


@pytest.mark.bench
@pytest.mark.timeout(3600)
def test_readers_of_two_million_results() -> None:
    """What `make bench-readers` prints, as a part of `make bench`."""
    main()

"""The benchmark of readers, once and short: it reads all rows, in every format and size of pages."""

from tests.bench.readers import FORMATS, PAGE_SIZES, line, measured


def test_readers_are_measured() -> None:
    figures = list(measured(240, 3, 1_000))

    assert [(f.form, f.page_rows) for f in figures] == [(f, size) for f in FORMATS for size in PAGE_SIZES]
    assert all(f.first_ms > 0 and f.all_rows_per_s > 0 for f in figures)
    assert line(figures[0])[:2] == ("Arrow", "100")

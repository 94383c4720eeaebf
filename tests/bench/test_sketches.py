"""The sketches benchmark: at smoke size in every test run, at full size under `make bench`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.bench.sketches import SETTINGS, SPLITS, TABLES, _basic, main, symmetric_error
from tests.sketches.sketch import AgmsSketch


def test_skimmed_is_more_accurate_at_smoke_size_and_the_report_is_whole(tmp_path: Path) -> None:
    main(domain=4096, rows=100_000, seeds=1, out=tmp_path)
    figures = pd.read_csv(tmp_path / "sketches.csv")
    assert set(figures["zipf"]) == set(SETTINGS)
    assert len(figures) == 2 * 3 * 5 * 5
    assert "| 1.5 |" in (tmp_path / "sketches.md").read_text(encoding="utf-8")
    assert (tmp_path / "sketches.png").stat().st_size > 10_000


def test_the_error_is_symmetric_and_bounded() -> None:
    assert symmetric_error(25.0, 100.0) == symmetric_error(400.0, 100.0) == 3.0
    assert symmetric_error(100.0, 100.0) == 0.0
    assert symmetric_error(1e-9, 100.0) == symmetric_error(0.0, 100.0) == 10.0


def test_a_smaller_basic_sketch_is_read_off_the_largest() -> None:
    keys, counts = np.arange(500), np.arange(500)
    large, small = AgmsSketch(40, TABLES, seed=1), AgmsSketch(15, TABLES, seed=1)
    large.update(keys, counts)
    small.update(keys, counts)
    assert _basic(large, large, 15, TABLES) == small.join_size(small)
    assert _basic(large, large, 15, 1) == np.square(small.counters.astype(float)).mean()
    assert TABLES in SPLITS


@pytest.mark.bench
@pytest.mark.timeout(1200)
def test_sketches_at_full_size(tmp_path: Path) -> None:
    main(out=tmp_path)

"""The many-keys benchmark: at smoke size in every test run, at full size under `make bench`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.many_keys import main


@pytest.mark.spark
def test_many_keys_counts_are_right_at_smoke_size(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    main(rows=120_000, files=6, directory=tmp_path / "data", native=False, single=False, report=report)
    document = json.loads(report.read_text(encoding="utf-8"))
    assert document["shared"]["input_rows"] == 240_000
    assert document["shared"]["steady_rows_per_s"] > 0


@pytest.mark.bench
@pytest.mark.timeout(3600)
def test_many_keys_at_full_size() -> None:
    main()

"""The demo's auctions: what they are, and what their punctuations gain."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pytest

from service.demo.auctions import HOUR_US, auction_tables
from service.demo.data import micros


def test_auctions_are_closed_after_two_hours_on_average_behind_their_bids() -> None:
    tables = auction_tables()
    again = auction_tables()
    assert all(tables.named[name].equals(again.named[name]) for name in ("auctions", "bids"))
    auctions, bids = tables.named["auctions"], tables.named["bids"]  # noqa: F841  # DuckDB reads them
    found = duckdb.sql(
        "SELECT count(*), count(DISTINCT item_id), avg(epoch_us(ended) - epoch_us(ts)), "
        "max(epoch_us(ended) - epoch_us(ts)), bool_and(coalesce(newest < ended AND oldest > ts, true)) "
        "FROM auctions JOIN (SELECT item_id, max(ts) FILTER (closes) AS ended, "
        "max(ts) FILTER (NOT closes) AS newest, min(ts) FILTER (NOT closes) AS oldest "
        "FROM bids GROUP BY item_id) USING (item_id)"
    ).fetchall()
    count, items, mean_us, longest_us, bids_between = found[0]
    assert (count, items, bids_between) == (12_000, 12_000, True)
    assert 1.9 * HOUR_US < mean_us < 2.1 * HOUR_US
    assert longest_us <= 11 * HOUR_US
    assert all((np.diff(micros(table)) >= 0).all() for table in tables.named.values())


#: The demo over a twentieth of its auctions.
SMALL = """
import sys
from dataclasses import replace
from pathlib import Path
from service.config.settings import Settings
from service.demo.auctions import HOUR_US, auction_tables
from service.demo.run import AUCTIONS, run_demo
small = replace(AUCTIONS, load=lambda: auction_tables(600, 30), step_us=2 * HOUR_US)
run_demo(Settings(), None, speed=None, once=True, data_dir=Path(sys.argv[1]), scene=small)
"""


@pytest.mark.spark
def test_the_demo_tells_what_punctuations_gain(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SMALL, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    found = re.search(
        r"600 auctions were closed; each count came at most (\d+) batches after the closing\.\n"
        r"\d+ auctions were in the state on average, ([\d.]+) times the "
        r"\d+ that would be there without punctuations\.",
        ended.stdout,
    )
    assert found is not None, ended.stdout
    assert int(found[1]) <= 2
    assert float(found[2]) <= 0.2

"""The soak, short: results are compared, what is wrong is found, growth is told from standing still."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.bench.soak import verdict
from tests.bench.soak.__main__ import judge
from tests.bench.soak.expected import Compared, batches_of, compare
from tests.bench.soak.load import POSTED, posted_file
from tests.bench.soak.queries import STANDING, SoakQuery, changed, visitor
from tests.bench.soak.readers import PAIR, pairs_file
from tests.bench.soak.report import SoakReport, write_report
from tests.bench.soak.rows import DISORDER_US, STREAMS, SoakRows
from tests.bench.soak.soak import FOLLOWED, Soaked, SoakSetting, soak
from tests.bench.soak.visitors import Phase, read_visits

ROWS = SoakRows(1_700_000_000_000_000, 100)
ENDS = (0, 700, 1500, 2100, 3000)
VERSIONS = (1, 1, 2, 3, 4)
BATCHES = [{"ends": [end, end], "plan_version": v} for end, v in zip(ENDS, VERSIONS, strict=True)]
WIDE = SoakQuery(40_000_000, 30_000_000, 1.0, 0.9)
NARROW = SoakQuery(20_000_000, 40_000_000, 0.8, 0.8)
VISITS = {
    "fresh": (Phase(WIDE, "none", 2),),
    "changed": (Phase(WIDE, "none", 2, 3), Phase(NARROW, "state", 3, 4)),
    "gone": (Phase(NARROW, "state", 2, 4),),
}


def batch_of(number: int) -> int:
    return next(batch for batch, end in enumerate(ENDS) if number < end)


def nested_loops(phases: Sequence[Phase]) -> list[tuple[int, int]]:
    """Return the pairs of a query, found without a join."""
    a, b = (list(zip(*ROWS.of(s, 0, ENDS[-1]).values(), strict=True)) for s in STREAMS)
    by_key: dict[int, list[tuple[int, int, float]]] = {}
    for ts, number, k, v in b:
        by_key.setdefault(int(k), []).append((int(ts), int(number), float(v)))
    found = []
    for a_ts, a_number, k, a_v in a:
        for b_ts, b_number, b_v in by_key.get(int(k), ()):
            batches = sorted((batch_of(int(a_number)), batch_of(b_number)))
            for phase in phases:
                query, since = phase.query, VERSIONS.index(phase.from_version)
                until = len(VERSIONS) if phase.to_version is None else VERSIONS.index(phase.to_version)
                in_window = 0 <= b_ts - a_ts < query.a_us or 0 <= a_ts - b_ts < query.b_us
                passes = a_v < query.a_below and b_v < query.b_below
                entitled = phase.backfill == "state" or batches[0] >= since
                if in_window and passes and entitled and since <= batches[1] < until:
                    found.append((int(a_number), b_number))
    return found


def keep(directory: Path, pairs: Mapping[str, Sequence[tuple[int, int]]], read_us: int = 0) -> None:
    for name, of_query in pairs.items():
        kept = np.array([(a, b, read_us) for a, b in of_query], PAIR)
        kept.tofile(pairs_file(directory, name))


def compared(directory: Path, pairs: Mapping[str, Sequence[tuple[int, int]]]) -> dict[str, Compared]:
    keep(directory, pairs)
    acknowledged = dict.fromkeys(STREAMS, ENDS[-1])
    found = compare(directory, ROWS, acknowledged, batches_of(BATCHES), VISITS)
    return {query.name: query for query in found}


@pytest.fixture(scope="module")
def right() -> dict[str, list[tuple[int, int]]]:
    standing = {name: nested_loops([Phase(query, "state", 1)]) for name, query in STANDING.items()}
    return standing | {name: nested_loops(phases) for name, phases in VISITS.items()}


def test_rows_do_not_depend_on_how_they_are_cut() -> None:
    whole = ROWS.of("B", 0, 50)
    parts = [ROWS.of("B", first, first + 10) for first in range(0, 50, 10)]

    for name, column in whole.items():
        assert np.array_equal(column, np.concatenate([part[name] for part in parts]))
    assert not np.array_equal(whole["k"], ROWS.of("A", 0, 50)["k"])


def test_the_body_of_a_request_has_the_rows_to_the_last_bit() -> None:
    rows = ROWS.of("A", 2**30, 2**30 + 500)
    body = json.loads(ROWS.body("A", 2**30, 2**30 + 500))

    assert {name: column.tolist() for name, column in rows.items()} == {
        name: [row[name] for row in body] for name in rows
    }


def test_rows_are_out_of_order_but_not_late() -> None:
    ts = SoakRows(0, 10_000).of("A", 0, 20_000)["ts"]
    behind_us = np.maximum.accumulate(ts) - ts

    assert 0 < behind_us.max() < DISORDER_US


def test_expected_pairs_are_those_of_nested_loops(
    tmp_path: Path, right: dict[str, list[tuple[int, int]]]
) -> None:
    found = compared(tmp_path, right)

    assert [query for query in found.values() if not query.equal] == []
    assert {name: query.expected for name, query in found.items()} == {n: len(p) for n, p in right.items()}
    assert all(found[name].expected > 20 for name in VISITS)


def test_missing_foreign_and_doubled_pairs_are_found(
    tmp_path: Path, right: dict[str, list[tuple[int, int]]]
) -> None:
    pairs = right["fresh"]

    found = compared(tmp_path, right | {"fresh": [*pairs[1:], pairs[5], pairs[6], (2999, 0)]})["fresh"]

    assert (found.missing, found.extra, found.doubled) == (1, 1, 2)
    assert not found.equal


def test_a_pair_from_before_a_query_came_is_foreign_to_it(
    tmp_path: Path, right: dict[str, list[tuple[int, int]]]
) -> None:
    earlier = sorted(set(nested_loops([Phase(WIDE, "state", 2)])) - set(right["fresh"]))
    assert earlier

    found = compared(tmp_path, right | {"fresh": [*right["fresh"], earlier[0]]})["fresh"]

    assert (found.missing, found.extra, found.doubled) == (0, 1, 0)


def test_input_that_no_batch_has_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="the batches end at row 3,000 of A, not 3,001"):
        compare(tmp_path, ROWS, dict.fromkeys(STREAMS, 3001), batches_of(BATCHES), {})


def test_a_visitor_that_uses_earlier_rows_is_within_the_widest_standing_query() -> None:
    rng = np.random.default_rng(5)
    widest = STANDING["standing20"]

    for _ in range(200):
        query, backfill = visitor(rng)
        held = [changed(query, rng), *([query] if backfill == "state" else [])]
        for each in held:
            assert max(each.a_us, each.b_us) <= min(widest.a_us, widest.b_us)
            assert each.a_below <= widest.a_below
            assert each.b_below <= widest.b_below


@pytest.mark.parametrize(
    ("name", "first", "last", "grew"),
    [
        ("all handles", 100, 104, False),
        ("all handles", 100, 108, True),
        ("source threads", 1, 3, False),
        ("all private_bytes", 1e9, 1.04e9, False),
        ("all private_bytes", 1e9, 1.06e9, True),
        ("all private_bytes", 1e9, 0.5e9, False),
        ("latency p99_s", 0.100, 0.104, False),
        ("latency p99_s", 0.100, 0.106, True),
        ("late files", 0, 50, True),
        ("of each batch: results files", 2, 2.05, False),
        ("of each batch: results files", 2, 2.2, True),
    ],
)
def test_more_than_a_twentieth_is_growth(name: str, first: float, last: float, grew: bool) -> None:
    assert verdict.grew(name, first, last) is grew


def test_latency_is_from_the_request_of_the_later_row(tmp_path: Path) -> None:
    start_s = 1_700_000_000
    for stream, delay_us in (("A", 0), ("B", 1_500_000)):
        sent_us = start_s * 1_000_000 + delay_us
        requests = [(0, 10, sent_us, sent_us + 40_000), (10, 20, sent_us + 100_000, sent_us + 200_000)]
        np.array(requests, POSTED).tofile(posted_file(tmp_path, stream))
    keep(tmp_path, {name: [(3, 9), (19, 10)] for name in FOLLOWED}, (start_s + 2) * 1_000_000)
    samples = [
        {"at_s": start_s + 1.0, "all private_bytes": 7.0, "load": 1.0, "x files": 3.0, "results files": 8.0}
    ]
    batches = [{"committed_us": (start_s + 0.5) * 1e6, "rows": 600.0, "state_rows": 1.0, "state_bytes": 2.0}]
    batches[0]["segments"] = 3.0

    frames = pd.DataFrame(samples), pd.DataFrame(batches)
    of_minutes = verdict.minutes(tmp_path, start_s, 60, FOLLOWED, *frames)
    (minute,) = of_minutes.itertuples()
    found = verdict.changes(*frames, of_minutes, start_s, 600, 60, 2)

    assert minute.results == 2 * len(FOLLOWED)
    assert minute.p50_s == pytest.approx((0.5 + 0.4) / 2, abs=1e-3)
    assert minute.post_p99_s == pytest.approx(0.1, abs=5e-3)
    assert minute.rows_per_s == 10
    assert tuple(found.loc["x files"]) == (3, 0)
    assert tuple(found.loc["state_rows"]) == (1, 0)
    assert tuple(found.loc["batches kept"]) == (1, 0)
    assert tuple(found.loc["of each batch: results files"]) == (8, 0)


def test_the_report_names_what_grew_and_what_is_wrong(tmp_path: Path) -> None:
    report = SoakReport(
        soaked=Soaked(SoakSetting(), 0, "2026-01-01 00:00"),
        machine="1 core",
        conditions="",
        facts={"rows posted": 10},
        compared=[Compared("visitor1", 5, 1, 0, 0), Compared("visitor2", 7, 0, 0, 0)],
        minutes=pd.DataFrame(),
        warm_up=1,
        stretch_s=600,
        changes=pd.DataFrame(
            {
                "all private_bytes": (5e8, 1e9, 2e9),
                "all handles": (100.0, 120.0, 121.0),
                "results files": (1.0, 10.0, 900.0),
            }
        ).T,
    )

    text = write_report(tmp_path, report)

    assert "from minute 10 on. More than 5% larger: **all private_bytes**." in text
    assert "| all private, MB | 500.0 | 1,000.0 | 2,000.0 | +100.0% (grew) |" in text
    assert "| all handles | 100 | 120 | 121 | +0.8% |" in text
    assert "(not judged)" in text
    assert "- visitor1: of 5 results 1 missing, 0 not expected, 0 doubled" in text
    assert json.loads((tmp_path / "soak.json").read_text())["compared"] == [
        {"name": "visitor1", "expected": 5, "missing": 1, "extra": 0, "doubled": 0}
    ]


@pytest.mark.slow
@pytest.mark.spark
def test_a_short_soak_gives_the_right_results(tmp_path: Path) -> None:
    setting = SoakSetting(duration_s=12, rate_per_s=1_000, change_every_s=1.0)

    soak(setting, tmp_path / "soak")
    report = judge(tmp_path / "soak")
    text = write_report(tmp_path / "out", report)

    assert report.wrong == []
    assert report.facts["rows posted"] == 2 * setting.rate_per_s * setting.duration_s
    assert report.facts["late rows"] == 0
    assert report.facts["queries that came"] >= 3
    assert sum(query.expected for query in report.compared) > 1_000
    assert f"| queries with other results | 0 of {len(report.compared)} |" in text
    (sample, *_) = (tmp_path / "soak" / "samples.jsonl").read_text().splitlines()
    for group in ("service", "JVM", "source", "workers", "all"):
        assert json.loads(sample)[f"{group} private_bytes"] > 0


@pytest.mark.slow
@pytest.mark.spark
def test_a_soak_of_three_minutes_gives_the_right_results(tmp_path: Path) -> None:
    soak(SoakSetting(duration_s=180, change_every_s=3.0), tmp_path / "soak")
    report = judge(tmp_path / "soak")

    assert report.wrong == []
    assert any(len(phases) > 1 for phases in read_visits(tmp_path / "soak" / "visits.json").values())

from __future__ import annotations

from operators.bucket.watermark import Watermark


def test_nothing_seen_gives_no_watermark() -> None:
    assert Watermark(5).value_us is None
    assert Watermark(5).after_rows(None).value_us is None


def test_the_watermark_is_the_newest_event_time_less_the_lateness() -> None:
    assert Watermark(5).after_rows(100).value_us == 95
    assert Watermark(0).after_rows(-100).value_us == -100


def test_older_rows_do_not_move_it_back() -> None:
    assert Watermark(5).after_rows(100).after_rows(60).value_us == 95


def test_a_heartbeat_moves_it_without_lateness_and_never_back() -> None:
    watermark = Watermark(5).after_rows(100).after_heartbeat(98)
    assert watermark.value_us == 98
    assert watermark.after_heartbeat(40).value_us == 98
    assert watermark.after_rows(102).value_us == 98
    assert watermark.after_rows(104).value_us == 99


def test_a_heartbeat_alone_is_a_watermark() -> None:
    assert Watermark(5).after_heartbeat(-7).value_us == -7

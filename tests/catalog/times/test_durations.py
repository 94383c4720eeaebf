import pytest

from catalog.errors import InvalidDuration
from catalog.times.durations import format_duration, parse_duration_us


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("5s", 5_000_000),
        ("5 sec", 5_000_000),
        ("10 MIN", 600_000_000),
        ("1.5h", 5_400_000_000),
        ("2 days", 172_800_000_000),
        ("250ms", 250_000),
        ("7us", 7),
        (5, 5_000_000),
        (0.5, 500_000),
        ("0", 0),
    ],
)
def test_a_length_of_time_is_read(text: str | float, micros: int) -> None:
    assert parse_duration_us(text) == micros


@pytest.mark.parametrize("text", ["", "s", "-5s", "5 parsecs", "1e3s", True, "nan"])
def test_what_is_not_a_length_of_time_is_refused(text: str | bool) -> None:
    with pytest.raises(InvalidDuration):
        parse_duration_us(text)


@pytest.mark.parametrize(
    "micros", [0, 1, 999, 1_000, 90_000_000, 3_600_000_000, 86_400_000_000, 86_400_000_001]
)
def test_what_is_written_is_read_back(micros: int) -> None:
    assert parse_duration_us(format_duration(micros)) == micros

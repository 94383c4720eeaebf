"""Errors of text files name the option under which the value would be read, if there is one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from service.inputs.formats.conversion.options import option_that_reads
from service.inputs.formats.conversion.values import TextForm

FILE = TextForm(is_of_file=True)
BERLIN = replace(FILE, timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("value", "column_type", "form", "option"),
    [
        ("1.234,50", "decimal(10,2)", FILE, 'decimal_point: ",", thousands: "."'),
        ("1,234.50", "double", FILE, 'thousands: ","'),
        ("1.001", "bigint", FILE, 'decimal_point: ",", thousands: "."'),
        ("89,90", "double", FILE, 'decimal_point: ","'),
        ("1,234", "double", FILE, 'decimal_point: "," or thousands: ","'),
        ("1,234", "bigint", FILE, 'thousands: ","'),
        ("1 234,5", "double", FILE, 'decimal_point: ",", thousands: " "'),
        ("1\u202f234,5", "double", FILE, 'decimal_point: ",", thousands: "\u202f"'),
        ("1'234.5", "double", FILE, 'thousands: "\'"'),
        (
            "0.5",
            "double",
            replace(FILE, decimal_point=",", thousands="."),
            'decimal_point: ".", thousands: null',
        ),
        ("12 apples", "bigint", FILE, None),
        ("1.5", "bigint", FILE, None),
        ("0x10", "bigint", FILE, None),
        ("1e400", "double", FILE, None),
        ("maybe", "boolean", FILE, None),
        (7, "bigint", FILE, None),
        ("31.12.2025 09:15:00", "timestamp", FILE, 'timestamp_format: "%d.%m.%Y %H:%M:%S"'),
        ("31.12.2025", "timestamp", FILE, 'timestamp_format: "%d.%m.%Y"'),
        ("31.12.25 9:15", "timestamp", FILE, 'timestamp_format: "%d.%m.%y %H:%M"'),
        ("12/31/2025 9:15:07 PM", "timestamp", FILE, 'timestamp_format: "%m/%d/%Y %I:%M:%S %p"'),
        (
            "01/02/2025 09:15",
            "timestamp",
            FILE,
            'timestamp_format: "%d/%m/%Y %H:%M" or "%m/%d/%Y %H:%M"',
        ),
        ("31.12.2025 09:15:00.25+0100", "timestamp", FILE, 'timestamp_format: "%d.%m.%Y %H:%M:%S.%f%z"'),
        (
            "31.12.2025 09:15",
            "timestamp",
            replace(FILE, timestamp_format="%m.%d.%Y %H:%M"),
            'timestamp_format: "%d.%m.%Y %H:%M"',
        ),
        ("32.12.2025 09:15", "timestamp", FILE, None),
        ("31.12.2025", "date", FILE, 'date_format: "%d.%m.%Y"'),
        ("01/02/2025", "date", FILE, 'date_format: "%d/%m/%Y" or "%m/%d/%Y"'),
        ("31.12.2025 09:15", "date", FILE, None),
        ("soon", "date", FILE, None),
        ("yesterday", "timestamp", FILE, None),
        # Clocks skip this time when they are set forward: no format can read it.
        ("29.03.2026 02:30:00", "timestamp", BERLIN, None),
    ],
)
def test_the_option_that_reads_a_value_is_named(
    value: object, column_type: str, form: TextForm, option: str | None
) -> None:
    found = option_that_reads(value, column_type, form)
    assert found == ("" if option is None else f"; it can be read with {option}")


def test_a_time_that_its_zone_leaves_out_is_told() -> None:
    found = option_that_reads("2026-03-29 02:30:00", "timestamp", BERLIN)
    assert found == "; clocks in Europe/Berlin are set forward past it"

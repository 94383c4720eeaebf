"""Streams in a browser: what came late, what was kept out, and a stream that is made from a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.api.console.conftest import Running

pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: Dirty on purpose: another separator, a header in capitals, quotes, an empty value, a column named twice.
CSV = (
    "TS;Order ID;Item Name;price;PRICE\r\n"
    '2026-01-01T10:00:00+01:00;1;"nuts; bolts";9.50;1\r\n'
    '2026-01-01T10:00:01+01:00;;"a ""good"" one";-3;2\r\n'
)


def test_streams_show_rate_late_rows_and_watermark(page: Page, running: Running) -> None:
    late = [{"ts": "2020-01-01T00:00:00Z", "id": 1, "total": 1.0}]
    running.ok("POST", "/streams/orders/events", 202, json=late)
    page.goto("/console/#/streams")
    card = page.get_by_role("region", name="Stream orders")

    expect(card).to_contain_text("Late1")
    expect(card).to_contain_text("Rejected0")
    expect(card).to_contain_text("Watermark2026-01-01 12:0")
    expect(page.get_by_role("img", name="orders: watermark 5 s behind")).to_be_visible()
    expect(page.get_by_role("img", name="payments: watermark")).to_be_visible()


def test_events_from_the_future_are_shown(page: Page, running: Running) -> None:
    future = [{"ts": "2999-01-01T00:00:00Z", "id": 77, "total": 1.0}]
    assert running.ok("POST", "/streams/orders/events", 202, json=future)["quarantined"] == 1
    page.goto("/console/#/streams")
    page.get_by_role("button", name="Show events kept out of orders").click()

    expect(page.get_by_text("1 event further ahead of the clock")).to_be_visible()
    expect(page.get_by_role("region", name="Stream orders").locator("pre")).to_contain_text('"id":77')


def test_files_set_aside_and_rows_skipped_are_shown_and_retried(
    page: Page, running: Running, tmp_path: Path
) -> None:
    aside, skipped = tmp_path / "aside", tmp_path / "skipped"
    for name, directory, on_error in (("aside", aside, "set-aside"), ("skipped", skipped, "skip-rows")):
        directory.mkdir()
        (directory / "1.csv").write_text("ts,id\n2026-01-01T12:00:00Z,1\n2026-01-01T12:00:01Z,one\n")
        stream = {
            "name": name,
            "columns": {"ts": "timestamp", "id": "bigint"},
            "event_time": "ts",
            "on_error": on_error,
            "source": {"type": "files", "format": "csv", "path": str(directory)},
        }
        running.ok("POST", "/streams", 201, json=stream)
    joined = "FROM aside [RANGE 1 MINUTES] a, skipped [RANGE 1 MINUTES] s WHERE a.id = s.id"
    with running.also("of_files", "a.id", joined):
        page.goto("/console/#/streams")

        expect(page.get_by_role("region", name="Stream skipped")).to_contain_text("Skipped1")
        card = page.get_by_role("region", name="Stream aside")
        expect(card).to_contain_text("1 file set aside")
        (aside / "1.csv").write_text("ts,id\n2026-01-01T12:00:00Z,1\n2026-01-01T12:00:01Z,2\n")
        card.get_by_role("button", name="Retry the files of aside").click()
        expect(card).to_contain_text("1 file will be read again.")
        expect(card).to_contain_text("Rows read2")
        expect(card).not_to_contain_text("set aside, the newest")


def test_a_stream_is_registered_from_a_file_and_removed(page: Page, running: Running) -> None:
    page.goto("/console/#/streams")
    page.get_by_label("Drop a file here").set_input_files(
        {"name": "My Sales.csv", "mimeType": "text/csv", "buffer": CSV.encode()}
    )
    expect(page.get_by_text("2 rows looked at, 5 columns")).to_be_visible()
    expect(page.get_by_label("Name of the stream")).to_have_value("My_Sales")
    expect(page.get_by_label("Event time", exact=True)).to_have_value("TS")
    expect(page.get_by_label("Type of Order_ID")).to_have_value("int")
    expect(page.get_by_label("Type of Item_Name")).to_have_value("string")
    expect(page.get_by_label("Type of price", exact=True)).to_have_value("double")
    page.get_by_label("Type of Order_ID").select_option("bigint")
    page.get_by_label("Post the 2 rows of the file").check()
    page.get_by_role("button", name="Register the stream").click()

    expect(page.get_by_text("My_Sales is registered. 2 rows posted")).to_be_visible()
    made = running.ok("GET", "/streams/My_Sales", 200)
    assert made["columns"] == {
        "TS": "timestamp",
        "Order_ID": "bigint",
        "Item_Name": "string",
        "price": "double",
        "PRICE_2": "int",
    }
    assert made["event_time"] == "TS"

    card = page.get_by_role("region", name="Stream My_Sales")
    card.get_by_role("button", name="Reset the watermark of My_Sales").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    card.get_by_role("button", name="Remove My_Sales").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(card).to_have_count(0)


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("empty.csv", "", "the file is empty"),
        ("ragged.csv", "a,b\n1,2\n3\n", "row 3 has 1 values, and the header 2"),
        ("broken.json", "{", "it is not JSON"),
        ("timeless.ndjson", '{"a": 1}\n', "No column holds moments"),
    ],
)
def test_a_file_that_is_no_sample_is_refused_in_words(page: Page, name: str, text: str, told: str) -> None:
    page.goto("/console/#/streams")
    page.get_by_label("Drop a file here").set_input_files(
        {"name": name, "mimeType": "text/plain", "buffer": text.encode()}
    )

    expect(page.get_by_text(told)).to_be_visible()


def test_a_stream_in_use_is_not_removed(page: Page) -> None:
    page.goto("/console/#/streams")
    page.get_by_role("button", name="Remove orders").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()

    expect(page.get_by_role("alert").filter(has_text="orders")).to_be_visible()

"""Documents of contracts: the values they give, and the refused ones with the path of the mistake."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from catalog.values.stream import Constraints, Order, Punctuations
from service.documents.streams.contract_document import (
    constraints_document,
    order_document,
    punctuations_document,
)
from service.documents.streams.stream_document import StreamDocument
from service.errors import InvalidStream

FILES = {"type": "files", "path": "items"}


def document(source: dict[str, Any] | None = None, **contract: Any) -> StreamDocument:
    columns = {"ts": "timestamp", "Item": "bigint", "shop": "string", "closes": "boolean"}
    facts = {"name": "items", "columns": columns, "event_time": "ts", "source": source or {"type": "http"}}
    return StreamDocument.model_validate(facts | contract)


def test_a_stream_without_a_contract_promises_nothing() -> None:
    stream = document().to_stream()
    assert (stream.punctuations, stream.constraints, stream.has_contract) == (None, Constraints(), False)
    # Runs that started before there were contracts recognize their workload by this text.
    assert "punctuations" not in repr(stream)
    assert "constraints" not in repr(stream)


def test_columns_are_those_declared_whatever_their_case() -> None:
    stream = document(
        FILES,
        punctuations={"on": [["ITEM"]], "violation": "stop", "remember": "1h", "column": "Closes"},
        constraints={"unique": ["item", "SHOP"]},
    ).to_stream()
    assert stream.punctuations == Punctuations((("Item",),), "stop", 3_600_000_000, "closes")
    assert stream.constraints == Constraints(("Item", "shop"))


@pytest.mark.parametrize(
    ("remember", "remember_us"), [("window", 0), ("forever", None), (90, 90_000_000), ("2 min", 120_000_000)]
)
def test_promises_are_remembered_for_windows_a_duration_or_forever(
    remember: str | int, remember_us: int | None
) -> None:
    promised = document(punctuations={"on": [["shop"]], "remember": remember}).to_stream().punctuations
    assert promised is not None
    assert promised.remember_us == remember_us


def test_a_contract_is_written_as_it_is_read() -> None:
    written = {"on": [["Item"], ["Item", "shop"]], "violation": "drop", "remember": "window", "column": None}
    written["open_time"] = "2h"
    stream = document(punctuations=written, constraints={"unique": ["shop"]}).to_stream()
    assert punctuations_document(stream.punctuations) == written
    assert constraints_document(stream.constraints) == {"unique": ["shop"], "clustered": [], "ordered": {}}
    assert (punctuations_document(None), constraints_document(Constraints())) == (None, None)


@pytest.mark.parametrize(
    ("source", "contract", "told", "path"),
    [
        (None, {"on": [["itm"]]}, 'column "itm" does not exist', ("punctuations", "on", 0)),
        (None, {"on": [["Item"], []]}, "a set of columns is empty", ("punctuations", "on", 1)),
        (None, {"on": [["Item", "item"]]}, 'column "item" is named twice', ("punctuations", "on", 0)),
        (None, {"on": [["Item"], ["item"]]}, "is given twice", ("punctuations", "on", 1)),
        (None, {"on": [["Item"]], "remember": "always"}, "remember: ", ("punctuations", "remember")),
        (None, {"on": [["Item"]], "open_time": "soon"}, "open_time: ", ("punctuations", "open_time")),
        (None, {"on": [["Item"]], "open_time": 0}, "the duration is 0", ("punctuations", "open_time")),
        (FILES, {"on": [["Item"]], "column": "shop"}, "has type string", ("punctuations", "column")),
        (None, {"on": [["Item"]], "column": "closes"}, "of source type http", ("punctuations", "column")),
        (FILES, {"on": [["Item"], ["shop"]], "column": "closes"}, "of 2 sets", ("punctuations", "column")),
    ],
)
def test_what_does_not_fit_the_stream_is_refused(
    source: dict[str, Any] | None, contract: dict[str, Any], told: str, path: tuple[str | int, ...]
) -> None:
    with pytest.raises(InvalidStream, match=told) as refused:
        document(source, punctuations=contract).to_stream()
    assert refused.value.path == path


def test_a_column_of_the_name_by_which_punctuations_are_told_is_refused() -> None:
    columns = {"ts": "timestamp", "_punctuation": "string"}
    facts = {"name": "x", "columns": columns, "event_time": "ts", "source": {"type": "http"}}
    assert StreamDocument.model_validate(facts).to_stream().name == "x"
    with pytest.raises(InvalidStream, match='has a column "_punctuation"'):
        StreamDocument.model_validate(facts | {"punctuations": {"on": [["ts"]]}}).to_stream()


def test_an_order_names_a_column_as_it_is_declared() -> None:
    stream = document(order={"column": "item", "scramble": 500}).to_stream()
    assert stream.order == Order("Item", 500)
    assert order_document(stream.order) == {"column": "Item", "scramble": 500, "descending": False}
    monitored = document(order={"column": "Item", "scramble": "monitor"}).to_stream().order
    assert monitored == Order("Item", None)
    assert order_document(monitored) == {"column": "Item", "scramble": "monitor", "descending": False}
    assert (document().to_stream().order, order_document(None)) == (None, None)


@pytest.mark.parametrize(
    ("order", "told"),
    [
        ({"column": "itm", "scramble": 0}, 'column "itm" does not exist'),
        ({"column": "shop", "scramble": 0}, 'column "shop" of stream "items" has type string'),
    ],
)
def test_an_order_that_does_not_fit_the_stream_is_refused(order: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidStream, match=told) as refused:
        document(order=order).to_stream()
    assert refused.value.path == ("order", "column")


@pytest.mark.parametrize("scramble", [-1, 1_000_001, 1.5, None])
def test_a_scramble_is_a_number_of_rows(scramble: object) -> None:
    with pytest.raises(ValidationError, match="scramble"):
        document(order={"column": "Item", "scramble": scramble})

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from catalog.values.counters.family_counters import FilterCounters
from operators.errors import CorruptPayload
from operators.pack.payload import Payload, StreamHeader, arrivals
from tests.operators.segment_builders import a_segment


def a_payload(order: int = 3) -> Payload:
    return Payload(
        order=order,
        batch=9,
        streams=(StreamHeader(1, 10, 2, -5), StreamHeader(2, 0, 0, None)),
        control=('{"seq":1}', "ä"),
        rows={
            ("f1", "a"): a_segment([(1, 10)], columns={"m": pa.array(["x"])}).rows,
            ("f1", "b"): a_segment([]).rows,
        },
        suspects={2: pa.RecordBatch.from_pydict({"ts": [1], "v": [None]})},
        filters=(FilterCounters("f1", "a", 3, 10, 4),),
        pack_us=1234,
        began_us=5678,
    )


def test_the_bytes_give_the_payload_back() -> None:
    sent = a_payload()
    got = Payload.decode(sent.encode())
    assert (got.order, got.batch, got.streams, got.control) == (3, 9, sent.streams, sent.control)
    assert (got.filters, got.pack_us, got.began_us) == (sent.filters, 1234, 5678)
    assert list(got.rows) == [("f1", "a"), ("f1", "b")]
    for name, rows in sent.rows.items():
        assert got.rows[name].equals(rows)
    assert got.suspects[2].equals(sent.suspects[2])


@pytest.mark.parametrize("control", ["", "x", "x" * 17, "x" * 64])
def test_columns_are_aligned_whatever_the_length_of_the_header(control: str) -> None:
    """Numpy gathers much slower from views that are not."""
    rows = {("f", side): a_segment([(1, 10), (2, 11)]).rows for side in "ab"}
    data = Payload(1, 0, control=(control,), rows=rows).encode()
    start = pa.py_buffer(data).address
    for batch in Payload.decode(data).rows.values():
        for name in ("_key", "_ts", "_pos"):
            assert (batch.column(name).buffers()[1].address - start) % 8 == 0


def test_a_payload_without_rows_is_its_header() -> None:
    got = Payload.decode(Payload(0, 1, (StreamHeader(1, 0, 0, None),)).encode())
    assert (dict(got.rows), dict(got.suspects), got.control) == ({}, {}, ())


@pytest.mark.parametrize("orders", [(0, 1), (1, 0)])
def test_rows_of_a_side_come_in_the_order_of_partitions(orders: tuple[int, int]) -> None:
    payloads = [
        Payload(
            order, 0, rows={("f", "a"): a_segment([(1, order)]).rows, ("g", "a"): a_segment([(1, 7)]).rows}
        )
        for order in orders
    ]
    payloads.append(Payload(2, 0))
    assert [rows.column("_ts").to_pylist() for rows, _ in arrivals(payloads, "f", "a")] == [[0], [1]]
    assert arrivals(payloads, "f", "b") == []


@pytest.mark.parametrize(
    "cut",
    [
        lambda data: b"",
        lambda data: data[:3],
        lambda data: data[:40],
        lambda data: data[:-100],
        lambda data: b"\xff\xff\xff\xff" + data[4:],
        lambda data: data.replace(b'"order"', b'"ordre"'),
        lambda data: data.replace(b'"rows":[[', b'"rows":[9'),
        lambda data: data.replace(b',""],', b',"x"],', 1),
        lambda data: data.replace(b"int64 ", b"int28 "),  # numpy parses it as a list of types
    ],
)
def test_bytes_that_are_no_payload_are_named_so(cut: Callable[[bytes], bytes]) -> None:
    data = a_payload().encode()
    with pytest.raises(CorruptPayload, match="bytes are not a payload"):
        Payload.decode(cut(data))

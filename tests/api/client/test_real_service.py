"""The client against a real service: what a user does in the first ten minutes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import anyio
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from sluice_client import AsyncClient, Client, changes, errors
from tests.api.running_service import WAIT_S, RunningService
from tests.waiting import until

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
CQL = (
    "SELECT o.id, o.total, p.amount FROM {0}_orders [RANGE 10 MINUTES] o, {0}_payments [RANGE 1 MINUTE] p "
    "WHERE o.id = p.order_id"
)


@pytest.fixture
def client(service: RunningService) -> Iterator[Client]:
    with Client(service.root) as client:
        yield client


def joined(client: Client, prefix: str) -> str:
    """Register two streams and a query over them, and return its name."""
    money = {"total": "decimal(10,2)"}
    client.register_stream(
        f"{prefix}_orders", {"ts": "timestamp", "id": "bigint", **money}, event_time="ts", lateness="5s"
    )
    client.register_stream(
        f"{prefix}_payments",
        {"ts": "timestamp", "order_id": "bigint", "amount": "double"},
        event_time="ts",
        lateness=timedelta(seconds=5),
    )
    name = f"{prefix}_paid"
    assert client.add_query(name, CQL.format(prefix), wait_s=WAIT_S).observed == "running"
    return name


def pay(client: Client, prefix: str, count: int, amount: float = 1.5) -> None:
    orders = [{"ts": NOON, "id": i, "total": Decimal("120.50")} for i in range(count)]
    assert client.ingest(f"{prefix}_orders", orders, batch_rows=2) == count
    later = NOON + timedelta(minutes=4)
    payments = pd.DataFrame({"ts": [later] * count, "order_id": range(count), "amount": [amount] * count})
    assert client.ingest(f"{prefix}_payments", payments) == count


def test_rows_come_out_as_they_went_in(client: Client) -> None:
    name = joined(client, "cl1")
    pay(client, "cl1", 3)
    until(lambda: client.query(name).results == 3, lambda: client.query(name))

    assert sorted(client.results(name), key=lambda row: row["id"])[1] == {
        "id": 1,
        "total": Decimal("120.50"),
        "amount": 1.5,
        "_event_time": NOON + timedelta(minutes=4),
    }
    table = client.results(name).to_arrow()
    assert table.schema.names == ["id", "total", "amount", "_event_time"]
    assert table.schema.field("total").type == pa.decimal128(10, 2)
    assert sorted(client.results(name).to_pandas()["id"]) == [0, 1, 2]
    frame = client.results(name).to_polars()
    assert frame.schema["_event_time"] == pl.Datetime("us")
    assert frame.height == 3
    (page,) = client.results(name).pages()
    assert list(client.results(name, after=page.cursor)) == []
    client.remove_query(name)


def test_a_life_of_queries(client: Client) -> None:
    name = joined(client, "cl2")
    assert client.pause_query(name, wait_s=WAIT_S).observed == "paused"
    assert client.resume_query(name, wait_s=WAIT_S).observed == "running"
    assert client.update_query(name, window={"o": timedelta(minutes=30)}).a.window == "30min"
    preview = client.preview(add={"cl2_more": CQL.format("cl2")})
    assert preview.plan.version == client.plan().version + 1
    made = client.change(
        [changes.add("cl2_more", CQL.format("cl2")), changes.update(name, filters={"p": "amount > 1"})],
        plan_version=client.plan().version,
        wait_s=WAIT_S,
    )
    assert [query.name for query in made.queries] == ["cl2_more", name]
    with pytest.raises(errors.StalePlanVersion) as stale:
        client.remove_query(name, plan_version=1)
    assert stale.value.plan_version == client.plan().version
    assert {"cl2_more", name} <= {query.name for query in client.queries()}
    assert {"cl2_orders", "cl2_payments"} <= {stream.name for stream in client.streams()}
    assert client.plan_text("mermaid").startswith("flowchart")
    assert client.dry_run(cleanup=True).dry_run
    assert client.engine().state == "running"
    assert client.last_batches(limit=1).items[0].plan_version == client.plan().version
    assert "cl2_more" in {found.query for found in client.statistics().queries}
    with pytest.raises(errors.StreamInUse):
        client.remove_stream("cl2_orders")
    client.change([changes.remove("cl2_more"), changes.remove(name)], wait_s=WAIT_S)
    client.remove_stream("cl2_orders")
    with pytest.raises(errors.StreamNotFound):
        client.stream("cl2_orders")


def test_a_mistake_in_a_query_is_shown_in_place(client: Client) -> None:
    name = joined(client, "cl3")
    with pytest.raises(errors.UnknownColumn) as raised:
        client.validate("SELECT o.idd FROM cl3_orders [NOW] o, cl3_payments [NOW] p WHERE o.id = p.order_id")
    place, text, carets, *rest = str(raised.value).splitlines()
    assert place == '1:10: column "idd" does not exist in stream "cl3_orders"'
    assert text.strip().startswith("SELECT o.idd FROM")
    assert carets.strip() == "^^^"
    assert rest == ['  hint: Did you mean "id"?']
    client.remove_query(name)


def test_following_ends_with_the_query(service: RunningService, client: Client) -> None:
    name = joined(client, "cl4")
    pay(client, "cl4", 2)

    async def followed() -> list[int]:
        seen = []
        async with AsyncClient(service.root) as waiting:
            async for row in waiting.follow(name):
                seen.append(row["id"])
                if len(seen) == 2:
                    await waiting.remove_query(name)
            assert (await waiting.results(name).to_arrow()).num_rows == 2
        return sorted(seen)

    assert anyio.run(followed) == [0, 1]

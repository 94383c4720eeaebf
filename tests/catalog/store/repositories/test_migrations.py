from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.errors import MigrationNotFound
from catalog.store.repositories import migrations
from catalog.store.store import Store
from catalog.values.migration import Migration, MigrationOutcome, SliceRows
from tests.catalog.examples import undone

ASKED = Migration(
    {"strategy": "cpu-opt"}, "migrate: strategy cpu-opt", ({"type": "merge", "at_us": 1},), 3, ("f",), 7, 70
)
TOOK = MigrationOutcome(4, 9, 1_000, 0.25, None, 0, (), (SliceRows("f", "shared", "a", 1, None, 5, 50),))


def test_migrations_are_numbered_and_read_back(store: Store) -> None:
    first = store.migrations.add(ASKED, 2, "me")
    failed = store.migrations.add(replace(ASKED, error="no", error_code="plan-refused"), None, "you")
    assert (first.id, failed.id) == (1, 2)
    assert store.migrations.get(1) == first
    assert store.migrations.page() == (first, failed)
    assert store.migrations.page(after=1) == (failed,)
    assert store.migrations.page(limit=1) == (first,)


def test_the_oldest_records_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "KEPT", 3)
    added = tuple(store.migrations.add(ASKED, version, "me") for version in range(1, 6))

    assert [record.id for record in added] == [1, 2, 3, 4, 5]
    assert store.migrations.page() == added[-3:]
    with pytest.raises(MigrationNotFound, match="migration 2 does not exist"):
        store.migrations.get(2)


def test_a_record_of_a_transaction_that_fails_is_not_there(store: Store) -> None:
    with undone(store):
        store.migrations.add(ASKED, 2, "me")
    assert store.migrations.page() == ()
    with pytest.raises(MigrationNotFound, match="migration 1 does not exist"):
        store.migrations.get(1)


def test_what_it_took_is_added_once_it_is_known(store: Store) -> None:
    store.migrations.add(ASKED, None, "failed")
    logged = store.migrations.add(ASKED, 2, "me")
    assert store.migrations.unsettled(10) == (logged,)
    settled = replace(ASKED, outcome=TOOK)
    store.migrations.settle(logged.id, settled)
    assert store.migrations.unsettled(10) == ()
    assert store.migrations.get(logged.id).migration == settled

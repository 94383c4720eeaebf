from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.errors import MigrationNotFound
from catalog.store.store import Store
from catalog.values.migration import Migration, MigrationOutcome, SliceRows
from tests.catalog.examples import undone

ASKED = Migration(
    {"strategy": "cpu-opt"}, "migrate: strategy cpu-opt", ({"type": "merge", "at_us": 1},), 3, ("f",), 7, 70
)
TOOK = MigrationOutcome(4, 9, 1_000, 0.25, None, 0, (), (SliceRows("f", "shared", "a", 1, None, 5, 50),))


def test_migrations_are_numbered_and_read_back(store: Store) -> None:
    first = store.add_migration(ASKED, 2, "me")
    failed = store.add_migration(replace(ASKED, error="no", error_code="plan-refused"), None, "you")
    assert (first.id, failed.id) == (1, 2)
    assert store.migration(1) == first
    assert store.migrations() == (first, failed)
    assert store.migrations(after=1) == (failed,)
    assert store.migrations(limit=1) == (first,)


def test_a_record_of_a_transaction_that_fails_is_not_there(store: Store) -> None:
    with undone(store):
        store.add_migration(ASKED, 2, "me")
    assert store.migrations() == ()
    with pytest.raises(MigrationNotFound, match="migration 1 does not exist"):
        store.migration(1)


def test_what_it_took_is_added_once_it_is_known(store: Store) -> None:
    store.add_migration(ASKED, None, "failed")
    logged = store.add_migration(ASKED, 2, "me")
    assert store.unsettled_migrations(10) == (logged,)
    settled = replace(ASKED, outcome=TOOK)
    store.settle_migration(logged.id, settled)
    assert store.unsettled_migrations(10) == ()
    assert store.migration(logged.id).migration == settled

"""Idempotency keys: the first answer stays, another request under the key is a conflict."""

from __future__ import annotations

import pytest

from catalog.errors import IdempotencyKeyReused
from catalog.store.clients.idempotency import KEEP_US, StoredAnswer
from catalog.store.store import Store
from tests.catalog.examples import undone


class Clock:
    """A clock that stands where it is put."""

    now_us = 1_700_000_000_000_000

    def __call__(self) -> int:
        return self.now_us


@pytest.fixture
def clock() -> Clock:
    """The store's clock."""
    return Clock()


def test_a_new_key_has_no_answer(store: Store) -> None:
    assert store.idempotency.recall("k", "f") is None


def test_the_first_answer_stays(store: Store) -> None:
    answer = StoredAnswer(202, '{"plan_version": 3}')
    assert store.idempotency.remember("k", "f", answer.status, answer.body) is None
    assert store.idempotency.remember("k", "f", 500, "{}") == answer
    assert store.idempotency.recall("k", "f") == answer


def test_another_request_under_the_key_is_a_conflict(store: Store) -> None:
    store.idempotency.remember("k", "f", 202, "{}")
    conflict = 'idempotency key "k" was used for another request'
    with pytest.raises(IdempotencyKeyReused, match=conflict):
        store.idempotency.recall("k", "g")
    with pytest.raises(IdempotencyKeyReused, match=conflict):
        store.idempotency.remember("k", "g", 202, "{}")


def test_answers_are_dropped_after_a_day(store: Store, clock: Clock) -> None:
    store.idempotency.remember("old", "f", 202, "{}")
    clock.now_us += KEEP_US
    store.idempotency.remember("young", "f", 202, "{}")
    assert store.idempotency.recall("old", "f") is not None
    clock.now_us += 1
    store.idempotency.remember("new", "f", 202, "{}")
    assert store.idempotency.recall("old", "f") is None
    assert store.idempotency.recall("young", "f") is not None


def test_an_answer_goes_with_its_mutation(store: Store) -> None:
    with undone(store):
        store.idempotency.remember("k", "f", 202, "{}")
    assert store.idempotency.recall("k", "f") is None

"""Readers learn exactly what they lost, also when it is dropped while they read."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.store.results import retention
from catalog.store.store import Store
from service.errors import InvalidCursor, ResultsExpired
from service.results.results import ResultReader
from tests.examples import seeds
from tests.service.dropping import SECOND_US, World, a_world


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(retention, "KEPT_BATCHES", 3)
    with a_world(tmp_path) as made:
        yield made


def test_a_reader_without_a_cursor_begins_with_what_is_kept_and_learns_what_is_not(world: World) -> None:
    for n in range(10):
        world.commit(n, -n)
    first = world.reader.page(world.q.id, None, 100)
    assert (first.dropped, first.kept_since_us) == (0, None)
    world.drop(7)
    page = world.reader.page(world.q.id, None, 3)
    assert page.table["k"].to_pylist() == [7, -7, 8]
    assert (page.dropped, page.kept_since_us, page.next_cursor) == (14, 7 * SECOND_US, "8.1")
    following = world.reader.page(world.q.id, "8.1", 10)
    assert (following.dropped, following.kept_since_us) == (0, None)
    assert world.reader.count(world.q.id) == 20


def test_a_cursor_before_what_was_dropped_is_refused(world: World) -> None:
    for n in range(10):
        world.commit(n, -n)
    world.drop(7)
    for cursor in ("0.0", "3.1", "6.0", "6.1"):
        with pytest.raises(ResultsExpired) as caught:
            world.reader.page(world.q.id, cursor, 10)
        with pytest.raises(ResultsExpired):
            world.reader.page_if_any(world.q.id, cursor, 10)
    assert str(caught.value) == (
        'results after cursor "6.1" are not kept any more\n'
        "  detail: 14 results of this query were dropped; results of batches since 1970-01-01 00:00:07 UTC "
        "are kept.\n"
        "  hint: Read without a cursor to start at the first result that is kept. The setting "
        "SLUICE_RESULT_RETENTION says how long results are kept."
    )
    assert (caught.value.dropped, caught.value.kept_since_us) == (14, 7 * SECOND_US)


def test_a_cursor_behind_what_was_dropped_goes_on(world: World) -> None:
    for n in range(10):
        world.commit(*([n, -n] if n in (2, 4, 8) else []))
    world.drop(7)
    for cursor in ("4.2", "5.0", "6.0", "7.0", "8.0"):
        assert world.values(cursor) == [8, -8], cursor
    assert world.reader.page(world.q.id, "4.2", 10).dropped == 0
    for cursor in ("4.3", "8.3", "9.1"):
        with pytest.raises(InvalidCursor, match="is beyond the results"):
            world.reader.page(world.q.id, cursor, 10)


def test_a_reader_that_has_read_everything_waits_on(world: World) -> None:
    world.commit(1, 2)
    for _ in range(9):
        world.commit()
    world.drop(7)
    page = world.reader.page(world.q.id, "0.2", 10)
    assert (page.table.num_rows, page.next_cursor, page.has_more) == (0, "0.2", False)
    world.commit(3)
    assert world.values("0.2") == [3]


class Meanwhile:
    """Something done once, before a reader's call of a method of the catalog."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act: Callable[[], object] | None = act

    @property
    def done(self) -> bool:
        return self._act is None

    def before(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def called(*args: Any) -> Any:
            act, self._act = self._act, None
            if act is not None:
                act()
            return method(*args)

        return called


@pytest.mark.parametrize(
    "before", [("result_files", "of_family"), ("retention", "dropped"), ("streams", "by_id")], ids=".".join
)
@pytest.mark.parametrize("after", [None, "2.1"])
def test_what_is_dropped_while_a_page_is_read_is_never_passed_over(
    world: World, monkeypatch: pytest.MonkeyPatch, before: tuple[str, str], after: str | None
) -> None:
    for n in range(10):
        world.commit(n)

    def drop_and_unlink() -> None:
        assert world.drop(5) == 5
        world.drop(5)
        assert world.files() == world.named()

    meanwhile = Meanwhile(drop_and_unlink)
    with Store.open(f"sqlite:///{world.directory / 'catalog.db'}") as store:
        repository, method = (getattr(store, before[0]), before[1])
        monkeypatch.setattr(repository, method, meanwhile.before(getattr(repository, method)))
        reader = ResultReader(store, world.directory / "results")
        if after is None:
            page = reader.page(world.q.id, after, 4)
            assert (page.table["k"].to_pylist(), page.dropped) == ([5, 6, 7, 8], 5)
        else:
            with pytest.raises(ResultsExpired):
                reader.page(world.q.id, after, 4)
        reader.close()
        assert meanwhile.done


def test_a_page_never_has_rows_of_another_batch_in_place_of_dropped_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of batch 0 a manifest stays, without files; the rows of batch 5 would fill the page alone."""
    world.commit(0)
    for _ in range(4):
        world.commit()
    world.commit(50, 51, 52, 53)
    for _ in range(4):
        world.commit()
    meanwhile = Meanwhile(lambda: world.drop(3))
    with Store.open(f"sqlite:///{world.directory / 'catalog.db'}") as store:
        of_family = meanwhile.before(store.result_files.of_family)
        monkeypatch.setattr(store.result_files, "of_family", of_family)
        reader = ResultReader(store, world.directory / "results")
        page = reader.page(world.q.id, None, 3)
        reader.close()
        assert store.batches.manifest(0) is not None
    assert (page.table["k"].to_pylist(), page.next_cursor, page.dropped) == ([50, 51, 52], "5.3", 1)


@pytest.mark.parametrize("seed", seeds(6))
def test_readers_see_what_a_naive_model_says(seed: int, world: World) -> None:
    """The model keeps all results ever in lists, and where what is kept begins."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    given: list[list[int]] = []
    kept_from = 0
    for step in range(60):
        values = [step * 10 + i for i in range(rng.choice([0, 0, 1, 2, 3]))]
        world.commit(*values)
        given.append(values)
        if rng.random() < 0.3:
            # The first look may only unlink; what is dropped is all that is old enough.
            wanted = rng.randint(0, len(given) + 2)
            world.drop(wanted)
            kept_from = max(kept_from, min(wanted, len(given) - 3))
        if rng.random() < 0.5:
            continue
        kept = [v for values in given[kept_from:] for v in values]
        lost = sum(map(len, given[:kept_from]))
        assert world.values(None, rng.choice([1, 2, 5, 100])) == kept
        assert world.reader.page(world.q.id, None, 1).dropped == lost
        batch = rng.randrange(len(given))
        for returned in range(5):
            cursor = f"{batch}.{returned}"
            rest = given[batch][returned:] + [v for values in given[batch + 1 :] for v in values]
            if any(v not in kept for v in rest):
                with pytest.raises(ResultsExpired):
                    world.values(cursor)
            elif returned > len(given[batch]) and (given[batch] or not rest):
                with pytest.raises(InvalidCursor):
                    world.values(cursor)
            else:
                assert world.values(cursor, rng.choice([1, 3, 100])) == rest
    world.drop(0)
    assert world.files() == world.named()

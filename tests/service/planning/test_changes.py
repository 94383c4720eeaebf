"""Changes of queries against a catalog, without an engine: one plan version, or nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from catalog.documents.codec import encode
from catalog.errors import NameTaken, QueryNotFound, SluiceError, StalePlanVersion, StreamInUse
from catalog.store.clients.idempotency import StoredAnswer
from catalog.store.store import Store
from catalog.values.change import (
    BOTH,
    AddQuery,
    Change,
    EditQuery,
    PauseQuery,
    QueryParts,
    RemoveQuery,
    ResumeQuery,
    UpdateQuery,
)
from catalog.values.plan import Plan
from catalog.values.stream import Column, HttpSource, Stream
from planner.build.objective import Objective
from service.errors import ChangedTwice, InvalidChanges, UnknownQuery
from service.inputs.reading.sample import CatalogRows
from service.planning.changes import Changed, changing
from service.planning.preview import Statistician
from service.planning.versions import Versions
from service.statistics.queries.query_status import query_statuses
from tests.empty_catalog import prepared
from tests.service.applying import apply_changes
from tests.statements import statements

COLUMNS = (Column("ts", "timestamp"), Column("k", "bigint"), Column("v", "double"))


def cql(window_s: int = 10, where: str = "", select: str = "a.k") -> str:
    return (
        f"SELECT {select} FROM A [RANGE {window_s} SECONDS] AS a, B [RANGE {window_s} SECONDS] AS b "
        f"WHERE a.k = b.k{where}"
    )


class World:
    """A catalog with the streams A and B."""

    def __init__(self, file: Path) -> None:
        self.store = Store.open(prepared(f"sqlite:///{file}"))
        for name in ("A", "B"):
            self.store.streams.add(Stream(0, name, COLUMNS, "ts", 0, HttpSource()))
        statistician = Statistician(self.store, CatalogRows(self.store), buckets=2)
        self.versions = Versions(self.store, statistician, Objective())

    def change(self, *changes: Change, **options: int | str | None) -> Changed:
        """Make a list of changes."""
        return apply_changes(self.versions, changes, **options)  # type: ignore[arg-type]  # by name

    def plan(self) -> Plan:
        """The newest plan."""
        plan = self.store.control_log.latest_plan()
        assert plan is not None
        return plan

    def planned(self) -> dict[str, int]:
        """Window of side a of every query in the newest plan, seconds."""
        return {q.name: q.w_a_us // 1_000_000 for f in self.plan().families for q in f.queries}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "catalog.db")
    yield made
    made.store.close()


def test_many_queries_are_added_by_as_many_statements_as_few(world: World) -> None:
    def added(numbers: range) -> list[str]:
        with statements() as found:
            changed = world.change(*(AddQuery(f"q{n}", cql(n)) for n in numbers))
            query_statuses(world.store, changed.records)
        return found

    added(range(1, 2))
    many, few = added(range(10, 50)), added(range(60, 63))
    assert len(many) == len(few), [text for text in many if text not in few]


def error_of(world: World, *changes: Change) -> SluiceError:
    """The error of a list that must be refused without a trace."""
    before = (
        world.store.control_log.latest_plan(),
        world.store.queries.all(),
        world.store.plan_history.page(),
    )
    with pytest.raises(SluiceError) as caught:
        world.change(*changes)
    assert (
        world.store.control_log.latest_plan(),
        world.store.queries.all(),
        world.store.plan_history.page(),
    ) == before
    return caught.value


def test_a_list_of_changes_is_one_plan_version(world: World) -> None:
    world.change(AddQuery("q1", cql(10)), AddQuery("q2", cql(20)), AddQuery("q3", cql(30)))
    changed = world.change(
        RemoveQuery("q1"), UpdateQuery("q2", cql(25)), PauseQuery("q3"), AddQuery("q4", cql(40)), actor="ann"
    )
    assert (changed.version, changed.effective) == (2, True)
    assert world.plan().version == 2
    assert world.planned() == {"q2": 25, "q4": 40}
    entry = world.store.plan_history.page()[-1]
    assert (entry.version, entry.actor, entry.cause) == (2, "ann", "add q4; pause q3; remove q1; update q2")


def test_an_update_leaves_and_enters_at_one_boundary_under_a_new_id(world: World) -> None:
    (added,) = world.change(AddQuery("q", cql(10))).records
    (updated,) = world.change(UpdateQuery("Q", cql(20))).records
    former = world.store.queries.by_id(added.query.id)
    assert (former.removed_version, former.left_by) == (2, "update")
    assert (updated.added_version, updated.series, updated.query.backfill) == (2, added.query.id, "state")
    assert updated.query.id > added.query.id
    assert updated.query.name == "q", "the name stays as it was given"
    assert [r.query.id for r in world.store.queries.series(added.series)] == [
        added.query.id,
        updated.query.id,
    ]


def test_parts_are_put_into_the_text_of_the_moment(world: World) -> None:
    world.change(AddQuery("q", cql(10, " AND a.v < 0.5")))
    world.change(EditQuery("q", QueryParts(windows={BOTH: "30s"})))
    (record,) = world.change(EditQuery("q", QueryParts(filters={"a": "v < 0.1"}))).records
    assert record.query.a.window_us == record.query.b.window_us == 30_000_000
    assert record.query.a.filter == '"v" < 0.1'
    assert world.change(UpdateQuery("q", record.query.cql)).effective is False


def test_a_paused_query_keeps_name_text_and_streams(world: World) -> None:
    world.change(AddQuery("q", cql(10)), AddQuery("other", cql(50)))
    world.change(PauseQuery("q"))
    assert world.planned() == {"other": 50}
    assert isinstance(error_of(world, AddQuery("Q", cql(10))), NameTaken)
    world.change(RemoveQuery("other"))
    with pytest.raises(StreamInUse, match='stream "A" is in use'):
        world.store.streams.remove("A")
    (record,) = world.change(ResumeQuery("q")).records
    assert world.planned() == {"q": 10}
    assert record.series == 2
    assert record.query.backfill == "state"
    assert world.store.queries.paused() == ()


def test_a_paused_query_takes_a_new_text_and_stays_paused(world: World) -> None:
    world.change(AddQuery("q", cql(10)), AddQuery("other", cql(50)))
    world.change(PauseQuery("q"))
    (record,) = world.change(UpdateQuery("q", cql(20))).records
    assert record.paused
    assert world.planned() == {"other": 50}
    assert [r.query.name for r in world.store.queries.paused()] == ["q"]
    world.change(ResumeQuery("q"))
    assert world.planned() == {"other": 50, "q": 20}


def test_removing_a_paused_query_frees_its_name(world: World) -> None:
    world.change(AddQuery("q", cql(10)))
    world.change(PauseQuery("q"))
    (record,) = world.change(RemoveQuery("q")).records
    assert (record.left_by, record.removed_version) == ("remove", 2)
    (again,) = world.change(AddQuery("q", cql(10))).records
    assert again.series == again.query.id, "a name given again is a new series"


def test_what_is_in_effect_already_makes_no_version(world: World) -> None:
    world.change(AddQuery("q", cql(10)), AddQuery("p", cql(20)))
    world.change(PauseQuery("p"))
    for change in (PauseQuery("p"), ResumeQuery("q"), UpdateQuery("q", f" {cql(10)}\n")):
        changed = world.change(change)
        assert (changed.version, changed.effective) == (2, False)
    assert world.plan().version == 2
    assert world.change(PauseQuery("p"), RemoveQuery("q")).version == 3
    assert world.store.plan_history.page()[-1].cause == "remove q"


def test_the_order_of_a_list_does_not_matter(tmp_path: Path) -> None:
    first = [AddQuery(f"q{n}", cql(10 * n, f" AND a.v < 0.{n}")) for n in range(1, 4)]
    second: list[Change] = [
        AddQuery("q9", cql(15, " AND a.v < 0.2")),
        UpdateQuery("q1", cql(12, " AND a.v < 0.3")),
        RemoveQuery("q2"),
        PauseQuery("q3"),
    ]
    plans = set()
    for number, order in enumerate(permutations(second)):
        world = World(tmp_path / f"{number}.db")
        world.change(*first)
        world.change(*order)
        plans.add(encode(world.plan()))
        world.store.close()
    assert len(plans) == 1


def test_all_that_is_wrong_is_told_with_its_place(world: World) -> None:
    world.change(AddQuery("q1", cql(10)))
    error = error_of(
        world,
        AddQuery("q2", cql(20)),
        AddQuery("Q1", cql(10)),
        UpdateQuery("q1", cql(10, " AND a.w < 1")),
        PauseQuery("q7"),
        RemoveQuery("q1"),
        AddQuery("2b", cql(10)),
        UpdateQuery("q8", cql(10)),
    )
    assert isinstance(error, InvalidChanges)
    assert error.primary == "6 of 7 changes cannot be made"
    assert [(type(each).__name__, each.path) for each in error.errors] == [
        ("NameTaken", ("changes", 1, "add", "name")),
        ("ChangedTwice", ("changes", 2, "update")),
        ("UnknownQuery", ("changes", 3, "pause")),
        ("ChangedTwice", ("changes", 4, "remove")),
        ("InvalidName", ("changes", 5, "add", "name")),
        ("UnknownQuery", ("changes", 6, "update", "name")),
    ]


@pytest.mark.parametrize(
    ("changes", "kind", "path"),
    [
        ([PauseQuery("q"), RemoveQuery("Q")], ChangedTwice, ("changes", 1, "remove")),
        ([AddQuery("x", cql(1)), ResumeQuery("p")], UnknownQuery, ("changes", 1, "resume")),
        (
            [EditQuery("q", QueryParts(filters={"b": "w > 1"}))],
            SluiceError,
            ("changes", 0, "update", "filter", "b"),
        ),
    ],
)
def test_one_fault_is_told_as_itself(
    world: World, changes: list[Change], kind: type[SluiceError], path: tuple[str | int, ...]
) -> None:
    world.change(AddQuery("q", cql(10)))
    error = error_of(world, *changes)
    assert isinstance(error, kind)
    assert error.path == path


def test_a_single_change_of_nothing_is_not_found(world: World) -> None:
    for change in (UpdateQuery("q", cql(10)), RemoveQuery("q"), PauseQuery("q"), ResumeQuery("q")):
        with pytest.raises(QueryNotFound, match='query "q" does not exist'):
            apply_changes(world.versions, change)


def test_a_change_for_another_plan_version_is_refused_with_the_current_one(world: World) -> None:
    world.change(AddQuery("q", cql(10)), if_match=0)
    with pytest.raises(StalePlanVersion) as caught:
        world.change(RemoveQuery("q"), if_match=0)
    assert caught.value.plan_version == 1
    world.change(RemoveQuery("q"), if_match=1)


def test_what_is_stored_with_a_change_is_durable_with_it_or_not_at_all(world: World) -> None:
    with changing(world.versions, AddQuery("q", cql(10))) as changed:
        world.store.idempotency.remember("key", "print", 202, str(changed.version))
    stored = world.store.idempotency.recall("key", "print")
    assert stored == StoredAnswer(202, "1")

    def dies_in_the_block() -> None:
        with changing(world.versions, RemoveQuery("q")) as changed:
            world.store.idempotency.remember("other", "print", 202, str(changed.version))
            assert not world.store.queries.newest("q").running
            raise EOFError

    with pytest.raises(EOFError):
        dies_in_the_block()
    assert world.store.idempotency.recall("other", "print") is None
    assert world.store.queries.get("q").running


def test_a_plan_that_cannot_run_leaves_nothing_behind(world: World) -> None:
    world.change(AddQuery("q", cql(10)))

    def refused(previous: Plan | None, plan: Plan) -> None:
        raise ValueError("cannot run")

    world.versions = replace(world.versions, try_out=refused)
    assert error_of(world, UpdateQuery("q", cql(20))).code == "plan-refused"
    assert world.planned() == {"q": 10}


def test_status_says_what_is_wanted_before_a_batch_has_it(world: World) -> None:
    world.change(AddQuery("q", cql(10)))
    world.change(UpdateQuery("q", cql(20)))
    (status,) = query_statuses(world.store, world.change(PauseQuery("q")).records)
    assert (status.desired, status.observed, status.plan_version) == ("paused", "pending", 3)
    assert (status.series, status.revisions) == (1, (1, 2))


#: Makes the first change of a process, and says whether others could write while it loaded what tries plans.
_FIRST_CHANGE = """
import sqlite3, sys
from pathlib import Path
from tests.service.planning.test_changes import World, cql
from catalog.values.change import AddQuery

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "service.planning.dry_run":
            with sqlite3.connect(sys.argv[1], timeout=0) as other:
                other.execute("BEGIN IMMEDIATE")
            print("others can write")

world = World(Path(sys.argv[1]))
sys.meta_path.insert(0, Finder())
world.change(AddQuery("q", cql()))
world.store.close()
"""


@pytest.mark.slow
def test_what_tries_plans_is_loaded_while_others_can_write(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _FIRST_CHANGE, str(tmp_path / "catalog.db")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (told.returncode, told.stdout) == (0, "others can write\n"), told.stderr

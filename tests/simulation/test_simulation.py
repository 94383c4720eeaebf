"""Worlds by their seeds: each ends with what nested loops say of what its clients were acknowledged.

A failure names its seed, which gives the same world again:

    SIMULATED_SEED=17 pytest tests/simulation -k one_world
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from catalog.store.clients.idempotency import IdempotencyRepository
from catalog.store.pruning import Pruning
from catalog.store.repositories.batches import BatchRepository
from catalog.values.sink import SinkRecord
from operators.bucket.bucket import Bucket
from operators.bucket.state.manifest import dropped_before_ids, dropped_ids, segment_ids
from service.commit.commit import BatchCommitter
from service.inputs.sources.posted.http_log import EventLog
from service.job.source import SluiceReader
from service.sinks.delivery import Delivery
from service.sinks.file_cuts import file_cuts
from tests.simulation.check import check
from tests.simulation.world import World, a_world

#: Files in memory: nothing here is about disks, and a world makes hundreds of small ones.
_IN_MEMORY = Path("/dev/shm")
SEEDS, AT_ONCE, MANY = 4, 100, 100
#: Worlds that once ended otherwise. 1416: the service died while it removed entries of Spark's log.
FOUND = (1416,)
#: Worlds in which streams come and go.
COMING, MANY_COMING = 1, 300
#: Worlds in which a mutation must be noticed.
_LOOKED_AT = 200


def in_a_world(seed: int, then: Callable[[World], Any] = check) -> Any:
    """Live through the world of a seed, and return what ``then`` does at its end."""
    parent = str(_IN_MEMORY) if os.access(_IN_MEMORY, os.W_OK) else None
    with (
        TemporaryDirectory(dir=parent, prefix="sluice-world-") as directory,
        a_world(Path(directory) / "data", seed) as world,
    ):
        try:
            world.run()
            return then(world)
        except Exception as problem:
            problem.add_note(f"seed {seed}, steps: {' '.join(world.history[-12:])}")
            raise


def test_worlds_end_as_nested_loops_say() -> None:
    assert sum(in_a_world(seed) for seed in (*range(-COMING, SEEDS), *FOUND)) > 100


def test_one_world_is_the_same_again() -> None:
    def all_of(world: World) -> object:
        check(world)
        ledger = world.ledger
        return world.history, world.death.writes, ledger.rows, ledger.readings, ledger.beats

    seed = int(os.environ.get("SIMULATED_SEED", "3"))
    assert in_a_world(seed, all_of) == in_a_world(seed, all_of)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(MANY))
def test_many_worlds_end_as_nested_loops_say(part: int, chosen_seed: int) -> None:
    first = chosen_seed * MANY * AT_ONCE + part * AT_ONCE
    for seed in range(first, first + AT_ONCE):
        in_a_world(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_worlds_in_which_streams_come_and_go(chosen_seed: int) -> None:
    first = -1 - chosen_seed * MANY_COMING
    for seed in range(first, first - MANY_COMING, -1):
        in_a_world(seed)


def no_receipts(patch: pytest.MonkeyPatch) -> None:
    """A post that is sent again is appended again."""
    patch.setattr(EventLog, "_receipt", lambda self, sending: None)
    patch.setattr(EventLog, "_keep_receipt", lambda self, sending, first, rows: None)


def no_answers(patch: pytest.MonkeyPatch) -> None:
    """A change that is sent again is made again."""
    patch.setattr(IdempotencyRepository, "recall", lambda self, key, fingerprint: None)


def position_before_file(patch: pytest.MonkeyPatch) -> None:
    """How far a sink is is written down before it has its file."""

    def early(self: Delivery, record: SinkRecord, sink: Any, waiting: Any, stopping: Any) -> int:
        (self.exports / sink.path).mkdir(parents=True, exist_ok=True)
        cuts = file_cuts(waiting, sink.batches_per_file, record.file_end)
        for cut in cuts:
            record = self._have(record, sink, [cut])
            self._write(sink, [cut], [], stopping)
        return sum(len(cut.batches) for cut in cuts)

    patch.setattr(Delivery, "_files", early)


def replay_reads_all(patch: pytest.MonkeyPatch) -> None:
    """A batch reads what there is now, not what the offset log says; and nobody compares digests."""
    planned = SluiceReader.partitions

    def all_there_is(self: SluiceReader, start: dict[str, int], end: dict[str, int]) -> Any:
        store, inputs = self._open()
        ends = {str(s.id): inputs.end(s) for s in store.streams.all() if str(s.id) in end}
        return planned(self, start, end | ends if start != end else end)

    patch.setattr(SluiceReader, "partitions", all_there_is)
    patch.setattr("service.commit.commit._digest", lambda manifest, start: "same")


def dropped_at_once(patch: pytest.MonkeyPatch) -> None:
    """Segments that a batch drops are removed before Spark has committed it."""
    patch.setattr("service.job.chain_processor.dropped_before_ids", _dropped_now)


def _dropped_now(manifest: bytes) -> tuple[str, ...]:
    return (*dropped_before_ids(manifest), *dropped_ids(manifest), *segment_ids(manifest))


def events_dropped_early(patch: pytest.MonkeyPatch) -> None:
    """Input goes as soon as a batch has read it."""

    def newest(self: Pruning) -> Any:
        return BatchRepository(self._database, self._now_us).last_manifest()

    patch.setattr(Pruning, "oldest_replayed", newest)


def first_files_removed(patch: pytest.MonkeyPatch) -> None:
    """Of a batch that is repeated the files of the first attempt go."""

    def remove(self: BatchCommitter, again: Any) -> None:
        kept = self.store.batches.manifest(again.batch)
        assert kept is not None
        for file in kept.files:
            (self.results_dir / file.path).unlink(missing_ok=True)

    patch.setattr(BatchCommitter, "_keep_whole", remove)


def nothing_recorded(patch: pytest.MonkeyPatch) -> None:
    """A batch that the catalog has, and Spark's log has not, is chosen again."""
    patch.setattr(SluiceReader, "_recorded", lambda self, store, batch: None)


def late_version_in_a_bucket(patch: pytest.MonkeyPatch) -> None:
    """One bucket takes up a change of plan a batch late."""
    held: list[tuple[str, ...]] = [()]
    whole = Bucket.process

    def late(self: Bucket, payloads: Any) -> Any:
        if any(p.place is not None and p.place[0] == 0 for p in payloads):
            texts = [p.control for p in payloads if p.control]
            waiting, held[0] = held[0], texts[0] if texts else ()
            controls = [waiting] + [()] * (len(payloads) - 1)
            payloads = [replace(p, control=c) for p, c in zip(payloads, controls, strict=True)]
        return whole(self, payloads)

    patch.setattr(Bucket, "process", late)


MUTATIONS = (
    no_receipts,
    no_answers,
    position_before_file,
    replay_reads_all,
    dropped_at_once,
    events_dropped_early,
    first_files_removed,
    nothing_recorded,
    late_version_in_a_bucket,
)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_mutation_is_noticed(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    for seed in range(_LOOKED_AT):
        try:
            in_a_world(seed)
        except Exception as noticed:
            print(f"{mutation.__name__}: noticed in seed {seed}: {noticed}")
            return
    raise AssertionError(f"nobody noticed in {_LOOKED_AT} worlds")

"""Two catalogs with the same life, of which one drops results: what both can be asked, both answer alike."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.store.pruning import REPLAYED_BATCHES
from catalog.store.store import Store
from catalog.values.batch import BatchManifest
from tests.catalog.store.results.test_retention import Job, kept_batches
from tests.examples import seeds


def _states(store: Store, names: list[str]) -> Iterator[object]:
    """What can be asked of a query whatever became of its results."""
    for name in names:
        record = store.queries.newest(name)
        added = store.batches.first_of_version(record.added_version)
        removed = None
        if record.removed_version is not None:
            removed = store.batches.first_of_version(record.removed_version)
        totals = store.counts.totals()
        yield (
            name,
            record,
            added,
            removed,
            sum(totals.get(q, 0) for q in store.queries.series_ids(record.series)),
        )


def _run_at(versions: list[int], manifest: BatchManifest | None) -> int:
    """Number of versions that queries came or left with up to a batch."""
    return 0 if manifest is None else sum(version <= manifest.plan_version for version in versions)


@pytest.mark.parametrize("seed", seeds(5))
def test_a_twin_that_keeps_everything_gives_the_same_answers(seed: int, tmp_path: Path, few: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    ticks = itertools.count(1_000_000)
    with (
        Store.open(f"sqlite:///{tmp_path / 'drops.db'}", now_us=lambda: next(ticks)) as dropping,
        Store.open(f"sqlite:///{tmp_path / 'keeps.db'}", now_us=lambda: 1) as keeping,
    ):
        jobs = Job(dropping), Job(keeping)
        live: dict[str, int] = {}
        horizon = 0
        for step in range(120):
            action = rng.random()
            name = rng.choice(sorted(live)) if live else ""
            if action < 0.15 or not live:
                live[f"q{step}"], _ = (job.add(f"q{step}") for job in jobs)
            elif action < 0.22:
                for job in jobs:
                    job.remove(name)
                del live[name]
            elif action < 0.3:
                live[name], _ = (job.update(name) for job in jobs)
            elif action < 0.35:
                for job in jobs:
                    job.replan()
            rows = {q: rng.randint(1, 3) for q in sorted(live.values()) if rng.random() < 0.4}
            for job in jobs:
                job.commit(rows)
            if rng.random() < 0.4:
                horizon = rng.randint(horizon, max(horizon, jobs[0].batch - 1 - REPLAYED_BATCHES))
                jobs[0].drop(horizon, limit=rng.choice([1, 2, 100]))
            if rng.random() < 0.3:
                dropping.pruning.prune()
            if rng.random() < 0.2:
                dropping.retention.thin_manifests()
        known = sorted({r.query.name for r in dropping.queries.all()})
        assert set(live) <= set(known)
        answers = zip(_states(dropping, known), _states(keeping, known), strict=True)
        for mine, theirs in answers:
            assert str(mine).replace(_times(mine), "") == str(theirs).replace(_times(theirs), "")
        kept_from, _ = dropping.retention.kept_from()
        assert dropping.batches.manifests(kept_from, 10**6) == keeping.batches.manifests(kept_from, 10**6)
        for record in dropping.queries.all():
            kept = keeping.counts.of_query(record.query.id, kept_from)
            assert dropping.counts.of_query(record.query.id) == kept
        # Which queries were there at an event time: that of the first batch that came so far.
        versions = [
            v for r in dropping.queries.all() for v in (r.added_version, r.removed_version) if v is not None
        ]
        for batch in range(jobs[0].batch):
            reached = keeping.batches.manifest(batch)
            assert reached is not None
            time_us = reached.streams[0].max_event_time_us
            assert time_us is not None
            left = dropping.batches.manifests(batch, jobs[0].batch)
            found = next((m for m in left if (m.streams[0].max_event_time_us or 0) >= time_us), None)
            assert _run_at(versions, found) == _run_at(versions, reached), f"batch {batch}"
        # What is there is bounded by what is known, not by what was.
        assert len(kept_batches(dropping)) <= jobs[0].batch - kept_from + 2 * len(set(versions)) + 2
        for record in dropping.queries.all():
            batches = [batch for batch, _ in dropping.counts.of_query(record.query.id)]
            if batches:
                found_routes = dropping.routes.of_query(record.query.id, batches)
                assert found_routes.tolist() == keeping.routes.of_query(record.query.id, batches).tolist()
                assert len(found_routes)


def _times(state: object) -> str:
    """The wall clock of a record, which differs between twins."""
    record = state[1]  # type: ignore[index]  # a tuple of _states
    return f"created_at_us={record.created_at_us}, removed_at_us={record.removed_at_us}"

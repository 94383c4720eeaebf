"""Outcome of a migration: duration and slices of its first batch, compared with the batches before."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from catalog.errors import PlanVersionNotFound
from catalog.steps import stream_names
from catalog.store.store import Store
from catalog.values.batch import BatchManifest
from catalog.values.migration import MigrationOutcome, MigrationRecord, SliceRows
from catalog.values.plan import Plan
from planner.families.families import side_chain
from planner.families.texts.display import display_interval, title_of

#: Number of batches before the migration whose median duration is computed.
MEDIAN_OF = 20


def outcome_of(store: Store, record: MigrationRecord) -> MigrationOutcome | None:
    """Return a migration's outcome, or None until a batch is committed under its or a later version.

    Args:
        store: The catalog.
        record: A migration that did not fail.
    """
    if record.plan_version is None:
        return None
    found = store.batches.first_of_version(record.plan_version)
    if found is None:
        return None
    batch, at_us = found
    manifests = store.batches.manifests(batch - MEDIAN_OF, batch)
    first, before = manifests[-1], manifests[:-1]
    families = record.migration.families
    return MigrationOutcome(
        batch=batch,
        plan_version=first.plan_version,
        active_at_us=at_us,
        seconds=_seconds(first),
        median_seconds=median(map(_seconds, before)) if before else None,
        batches=len(before),
        before=tuple(_slices(store, before[-1], families)) if before else (),
        after=tuple(_slices(store, first, families)),
    )


def _seconds(manifest: BatchManifest) -> float:
    return (manifest.committed_at_us - manifest.started_at_us) / 1e6


def _slices(store: Store, manifest: BatchManifest, families: tuple[str, ...]) -> Iterator[SliceRows]:
    plan = _plan(store, manifest.plan_version)
    planned = {} if plan is None else {f.id: f for f in plan.families}
    streams = {} if plan is None else stream_names(plan)
    for found in manifest.slices:
        if found.family not in families:
            continue
        family = planned.get(found.family)
        window = None
        if family is not None:
            join = next(j for j in family.joins if j.id == found.join)
            window = display_interval(
                side_chain(join, "a" if found.side == "a" else "b")[found.slice - 1], family.clock(found.side)
            )
        yield SliceRows(
            family=found.family if family is None else title_of(family, streams),
            join=found.join,
            side=found.side,
            slice=found.slice,
            window=window,
            rows=found.rows,
            bytes=found.bytes,
        )


def _plan(store: Store, version: int) -> Plan | None:
    """Return a plan, or None if the plan was pruned."""
    if version == 0:
        return None
    try:
        return store.control_log.plan(version)
    except PlanVersionNotFound:
        return None

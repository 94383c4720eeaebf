"""Profile of the running job, measured from manifests, and merge of profiles of several origins.

The job writes these counters to its manifests anyway, so measuring costs it nothing. Every number is a ratio
of two sums over the last batches. In both sums, a batch that is followed by n batches with input has the
weight 2^(-n/HALF_LIFE):

    rate          rows that were not late        /  event time that the stream advanced by
    row bytes     encoded bytes held             /  rows held
    selectivity   rows that passed the filter    /  rows judged
    join          pairs of equal key             /  pairs that nested loops would compare  (inside a bucket)
    copies        male copies of rows            /  rows
    keys          rows x distinct keys of a batch  /  rows
    skew          self-join size of the batch    /  rows^2 / distinct keys    (what equal shares would give)
    batch         event time advanced            /  batches with input
    open time     rows with open keys x event time advanced  /  rows whose keys were closed

Unlike a mean of ratios, a ratio of sums measures a constant exactly, however the input was cut into batches,
and a batch with little evidence has little influence. This is exponential smoothing, with evidence as a
further weight. For the open time, the ratio is also the maximum-likelihood mean of an exponential
distribution, even though rows leave with their windows before their keys are closed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from catalog.steps import is_intermediate
from catalog.store.store import Store
from catalog.values.batch import BatchManifest
from catalog.values.plan import Plan
from catalog.values.statistics import (
    FamilyProfile,
    FilterProfile,
    Measure,
    Origin,
    Profile,
    StreamProfile,
)
from planner.families.families import family_clocks
from planner.orders.lag import Sighting, estimated_lag
from service.checkpoint.buckets import stored_buckets

#: Number of latest batches that are measured. One more batch is read, since it shows where the first of them
#: began. Older batches would have a weight under 4 percent.
RECENT_BATCHES = 50
#: Number of later batches with input after which the weight of a batch is halved; at one batch per second, a
#: change shows in half a minute.
HALF_LIFE_BATCHES = 10.0

#: Rank of each origin; a number is taken from the origin with the lowest rank.
_BELIEVED: Mapping[Origin, int] = {"given": 0, "measured": 1, "sampled": 2, "assumed": 3}


def profile_of(store: Store, *, now_us: int) -> Profile:
    """Measure the profile of a catalog's job.

    Args:
        store: The catalog.
        now_us: Wall clock, µs UTC; the upper limit for the times of all numbers, in case the clock was set
            back after a batch.

    Returns:
        Statistics of the last batches, all of origin ``measured``; streams, filters and families that these
        batches do not cover are missing.
    """
    return profile_from(store, recent_manifests(store), now_us=now_us)


def profile_from(store: Store, manifests: Sequence[BatchManifest], *, now_us: int) -> Profile:
    """Measure the profile from manifests already read with `recent_manifests`."""
    return measured_profile(manifests, _families_of(store, manifests), stored_buckets(store), now_us=now_us)


def recent_manifests(store: Store) -> tuple[BatchManifest, ...]:
    """Return the manifests that `measured_profile` reads: the last batches, and one batch before them."""
    last = store.batches.last_manifest()
    return () if last is None else store.batches.manifests(max(last.batch - RECENT_BATCHES, 0), last.batch)


@dataclass(frozen=True, slots=True)
class FamilyNames:
    """Names to which a family's counters refer.

    Attributes:
        streams: Stream id by side.
        filters: Canonical predicate by side and lineage bit; no bit is ever reused.
    """

    streams: Mapping[str, int]
    filters: Mapping[tuple[str, int], str]


def measured_profile(
    manifests: Sequence[BatchManifest],
    families: Mapping[str, FamilyNames],
    buckets: int | None,
    *,
    now_us: int,
) -> Profile:
    """Measure the profile from manifests.

    Args:
        manifests: Consecutive manifests, in order. The first manifest gives no rates, since it is unknown
            where its input began.
        families: Names by family id; counters of other families are left out.
        buckets: Number of buckets of the job, or None for the default.
        now_us: Upper limit for the times of all numbers, µs UTC.
    """
    sums = _Sums(families, Profile().buckets if buckets is None else buckets, now_us)
    before: dict[int, int] = {}
    advances = [_advances(manifest, before) for manifest in manifests]
    moving = {stream for advanced in advances for stream, by_us in advanced.items() if by_us > 0}
    weight, weights = 1.0, []
    for manifest in reversed(manifests):
        weights.append(weight)
        if any(s.rows for s in manifest.streams):
            weight *= 0.5 ** (1 / HALF_LIFE_BATCHES)
    for manifest, advanced, weight in zip(manifests, advances, reversed(weights), strict=True):
        sums.add(manifest, advanced, moving, weight)
    return sums.profile()


def merge_profiles(given: Profile, measured: Profile, sampled: Profile) -> Profile:
    """Take each number from its most trusted origin, in the order given, measured, sampled, assumed.

    Args:
        given: Numbers of a request.
        measured: Numbers of the running job; the number of buckets is taken from here.
        sampled: Numbers of the inputs.

    Returns:
        All streams, filters and families of the three profiles; each number keeps its origin.
    """
    profiles = (given, measured, sampled)
    streams: dict[int, StreamProfile] = {}
    filters: dict[tuple[int, str], FilterProfile] = {}
    families: dict[str, FamilyProfile] = {}
    for profile in profiles:
        for s in profile.streams:
            streams[s.stream_id] = _merge_streams(streams.get(s.stream_id, s), s)
        for f in profile.filters:
            known = filters.setdefault((f.stream_id, f.sql), f)
            filters[f.stream_id, f.sql] = replace(f, selectivity=_best(known.selectivity, f.selectivity))
        for j in profile.families:
            families[j.family] = _merge_families(families.get(j.family, j), j)
    return Profile(
        streams=tuple(streams[i] for i in sorted(streams)),
        filters=tuple(filters[i] for i in sorted(filters)),
        families=tuple(families[i] for i in sorted(families)),
        batch_s=_best(_best(given.batch_s, measured.batch_s), sampled.batch_s),
        buckets=measured.buckets,
        input_s=sampled.input_s,
        bands=sampled.bands,
    )


def _merge_streams(one: StreamProfile, other: StreamProfile) -> StreamProfile:
    return StreamProfile(
        one.stream_id,
        _best(one.rate_per_s, other.rate_per_s),
        _best_of(one.row_bytes, other.row_bytes),
        _best_of(one.scramble, other.scramble),
    )


def _merge_families(one: FamilyProfile, other: FamilyProfile) -> FamilyProfile:
    return FamilyProfile(
        family=one.family,
        join_selectivity=_best(one.join_selectivity, other.join_selectivity),
        keys_a=_best_of(one.keys_a, other.keys_a),
        keys_b=_best_of(one.keys_b, other.keys_b),
        skew_a=_best_of(one.skew_a, other.skew_a),
        skew_b=_best_of(one.skew_b, other.skew_b),
        frequent=one.frequent or other.frequent,
        lag_a=_best_of(one.lag_a, other.lag_a),
        lag_b=_best_of(one.lag_b, other.lag_b),
        open_a_s=_best_of(one.open_a_s, other.open_a_s),
        open_b_s=_best_of(one.open_b_s, other.open_b_s),
    )


def _best(one: Measure, other: Measure) -> Measure:
    """Return the measure with the more trusted origin; the first if both origins rank equally."""
    return other if _BELIEVED[other.origin] < _BELIEVED[one.origin] else one


def _best_of(one: Measure | None, other: Measure | None) -> Measure | None:
    if one is None or other is None:
        return other if one is None else one
    return _best(one, other)


@dataclass(slots=True)
class _Ratio:
    """A weighted ratio of sums, and the time of its newest evidence.

    Attributes:
        part: Weighted sum of the numerators.
        whole: Weighted sum of the denominators.
        at_us: Commit time of the newest batch with evidence, µs UTC.
    """

    part: float = 0.0
    whole: float = 0.0
    at_us: int = 0

    def add(self, part: float, whole: float, weight: float, at_us: int) -> None:
        self.part += weight * part
        self.whole += weight * whole
        if part or whole:
            self.at_us = at_us

    def measure(self) -> Measure | None:
        """Return the ratio, or None without evidence."""
        return Measure(self.part / self.whole, "measured", self.at_us) if self.whole > 0 else None


def _ratios() -> defaultdict[tuple[str, str], _Ratio]:
    return defaultdict(_Ratio)


@dataclass(slots=True)
class _Sums:
    """Sums of the numerators and denominators of all ratios."""

    families: Mapping[str, FamilyNames]
    buckets: int
    now_us: int
    rates: defaultdict[int, _Ratio] = field(default_factory=lambda: defaultdict(_Ratio))
    widths: defaultdict[int, _Ratio] = field(default_factory=lambda: defaultdict(_Ratio))
    filters: defaultdict[tuple[int, str], _Ratio] = field(default_factory=lambda: defaultdict(_Ratio))
    joins: defaultdict[str, _Ratio] = field(default_factory=lambda: defaultdict(_Ratio))
    keys: defaultdict[tuple[str, str], _Ratio] = field(default_factory=_ratios)
    skews: defaultdict[tuple[str, str], _Ratio] = field(default_factory=_ratios)
    copies: defaultdict[str, _Ratio] = field(default_factory=lambda: defaultdict(_Ratio))
    opens: defaultdict[tuple[str, str], _Ratio] = field(default_factory=_ratios)
    batch: _Ratio = field(default_factory=_Ratio)
    sightings: defaultdict[int, list[Sighting]] = field(default_factory=lambda: defaultdict(list))
    seen_us: int = 0

    def add(
        self, manifest: BatchManifest, advanced: Mapping[int, int], moving: set[int], weight: float
    ) -> None:
        """Add a batch.

        Args:
            manifest: The batch.
            advanced: Event time by which each stream advanced, µs; streams whose beginning is unknown are
                missing.
            moving: Streams that advance in any of the batches.
            weight: Weight of the batch.
        """
        at_us = min(manifest.committed_at_us, self.now_us)
        for s in manifest.streams:
            if s.scramble is not None:
                before = self.sightings[s.stream_id][-1:]
                so_far = (before[0].rows if before else 0) + s.rows
                self.sightings[s.stream_id].append(Sighting(so_far, s.order_passed, s.scramble))
                self.seen_us = at_us
            if s.stream_id in advanced:
                rows = s.rows - s.late_rows - s.rejected_rows
                self.rates[s.stream_id].add(rows, advanced[s.stream_id] / 1e6, weight, at_us)
        if known := moving & advanced.keys():
            # Take the mean: if the files of streams alternate, each stream stands still in every other batch.
            by_us = sum(advanced[stream] for stream in known) / len(known)
            self.batch.add(by_us / 1e6, any(s.rows for s in manifest.streams), weight, at_us)
            self._add_intermediates(manifest, by_us, weight, at_us)
            self._add_closings(manifest, by_us, weight, at_us)
        for c in manifest.slices:
            if c.family in self.families:
                width = self.widths[self.families[c.family].streams[c.side]]
                width.add(c.own_bytes or c.bytes, c.rows, weight, at_us)
                if not c.again:
                    # Pairs that are made again were selected by key, so they would bias the selectivity.
                    self.joins[c.family].add(c.touched, c.product, weight, at_us)
        for f in manifest.filters:
            names = self.families.get(f.family)
            if names is not None and (f.side, f.bit) in names.filters:
                key = names.streams[f.side], names.filters[f.side, f.bit]
                self.filters[key].add(f.passed, f.rows, weight, at_us)
        for k in manifest.keys:
            if k.family in self.families and k.keys:
                self.keys[k.family, k.side].add(k.rows * k.keys, k.rows, weight, at_us)
                self.skews[k.family, k.side].add(k.squares, k.rows**2 / k.keys, weight, at_us)
                self.copies[k.family].add(k.copies or k.rows, k.rows, weight, at_us)

    def _add_intermediates(self, manifest: BatchManifest, by_us: float, weight: float, at_us: int) -> None:
        """Add the rates of pairs passed on to later steps, since no source counts these pairs."""
        rows = {(k.family, k.side): k.copies or k.rows for k in manifest.keys}
        for family, names in self.families.items():
            for side in ("a", "b"):
                if is_intermediate(names.streams[side]):
                    came = rows.get((family, side), 0)
                    self.rates[names.streams[side]].add(came, by_us / 1e6, weight, at_us)

    def _add_closings(self, manifest: BatchManifest, by_us: float, weight: float, at_us: int) -> None:
        """Add rows waiting for the other side to close their keys, and rows whose keys were closed."""
        for p in manifest.punctuations:
            side = "b" if p.side == "a" else "a"
            self.opens[p.family, side].add(p.live * by_us / 1e6, p.died, weight, at_us)

    def profile(self) -> Profile:
        """Return the profile that the sums give."""
        return Profile(
            streams=tuple(self._streams()),
            filters=tuple(self._filters()),
            families=tuple(self._families()),
            batch_s=self._batch(),
            buckets=self.buckets,
        )

    def _streams(self) -> Iterable[StreamProfile]:
        for stream_id in sorted(self.rates):
            rate = self.rates[stream_id].measure()
            if rate is not None:
                seen = self.sightings.get(stream_id)
                scramble = Measure(seen[-1].scramble, "measured", self.seen_us) if seen else None
                yield StreamProfile(stream_id, rate, self.widths[stream_id].measure(), scramble)

    def _filters(self) -> Iterable[FilterProfile]:
        for stream_id, sql in sorted(self.filters):
            found = self.filters[stream_id, sql].measure()
            if found is not None:
                yield FilterProfile(stream_id, sql, found)

    def _families(self) -> Iterable[FamilyProfile]:
        for family in sorted(self.joins):
            found = self.joins[family].measure()
            if found is not None:
                copies = self.copies[family].measure()
                selectivity = _over_all_buckets(
                    min(found.value, 1.0), self.buckets, 1.0 if copies is None else copies.value
                )
                yield FamilyProfile(
                    family=family,
                    join_selectivity=replace(found, value=selectivity),
                    keys_a=self.keys[family, "a"].measure(),
                    keys_b=self.keys[family, "b"].measure(),
                    skew_a=self.skews[family, "a"].measure(),
                    skew_b=self.skews[family, "b"].measure(),
                    lag_a=self._lag(family, "a", "b"),
                    lag_b=self._lag(family, "b", "a"),
                    open_a_s=self._open_s(family, "a"),
                    open_b_s=self._open_s(family, "b"),
                )

    def _open_s(self, family: str, side: str) -> Measure | None:
        """Return the mean seconds until the other side closes a row's key, or None if no wait was seen."""
        found = self.opens[family, side].measure()
        return None if found is None or found.value <= 0 else found

    def _lag(self, family: str, own: str, other: str) -> Measure | None:
        """Return the number of rows by which one side of a family is ahead of the other in their order."""
        if "order" not in family_clocks(family):
            return None
        ids = self.families[family].streams
        seen = [self.sightings.get(ids[side], []) for side in (own, other)]
        shared = min(map(len, seen))
        lag = estimated_lag(*(sightings[len(sightings) - shared :] for sightings in seen)) if shared else None
        return None if lag is None else Measure(lag, "measured", self.seen_us)

    def _batch(self) -> Measure:
        found = self.batch.measure()
        return found if found is not None and found.value > 0 else Profile().batch_s


def _over_all_buckets(fraction: float, buckets: int, copies: float = 1.0) -> float:
    """Convert the fraction of pairs with equal keys inside a bucket to the fraction among all pairs.

    A male meets only the rows of the buckets that it is sent to. Rows of equal keys always meet, in one
    bucket. Rows of different keys meet with probability copies / V, if there are V buckets and a male is sent
    to ``copies`` of them. So with selectivity S, the fraction S + (1 - S) copies / V of all pairs is
    compared, and the fraction S of all pairs has equal keys.

    >>> _over_all_buckets(0.1, 1), _over_all_buckets(1.0, 4), round(_over_all_buckets(0.1, 2), 4)
    (0.1, 1.0, 0.0526)
    >>> round(_over_all_buckets(0.1, 4, 4.0), 4)
    0.1
    """
    meeting = copies / buckets
    return fraction * meeting / (1.0 - (1.0 - meeting) * fraction)


def _advances(manifest: BatchManifest, progress: dict[int, int]) -> dict[int, int]:
    """Return the event time by which each stream advanced in a batch, µs, and record its progress.

    A heartbeat also advances a stream: the event time that it skips had no rows.
    """
    advanced = {}
    for s in manifest.streams:
        known = [t for t in (s.max_event_time_us, s.watermark_us) if t is not None]
        if not known:
            continue
        if s.stream_id in progress:
            advanced[s.stream_id] = max(max(known) - progress[s.stream_id], 0)
        progress[s.stream_id] = max(*known, progress.get(s.stream_id, max(known)))
    return advanced


def _families_of(store: Store, manifests: Sequence[BatchManifest]) -> dict[str, FamilyNames]:
    """Return the names that the batches' counters refer to, from as few plans as possible, newest first."""
    wanted = {s.family for m in manifests for s in m.slices}
    bits = {(f.family, f.side, f.bit) for m in manifests for f in m.filters}
    found: dict[str, FamilyNames] = {}
    for version in sorted({m.plan_version for m in manifests} - {0}, reverse=True):
        if wanted <= found.keys() and all(
            (side, bit) in found[family].filters for family, side, bit in bits if family in found
        ):
            break
        plan = store.control_log.kept_plan(version)
        if plan is None:
            # This plan was pruned, and so were all older plans. Families in force are in newer plans.
            break
        for family_id, names in _names(plan).items():
            known = found.get(family_id, names)
            found[family_id] = FamilyNames(names.streams, {**names.filters, **known.filters})
    return found


def _names(plan: Plan) -> dict[str, FamilyNames]:
    return {
        f.id: FamilyNames(
            {"a": f.stream_a, "b": f.stream_b},
            {("a", p.bit): p.sql for p in f.filters_a} | {("b", p.bit): p.sql for p in f.filters_b},
        )
        for f in plan.families
    }

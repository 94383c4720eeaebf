"""What one plan version costs, by number of queries: whoever asks for it, the driver, and every bucket.

request   build_plan ── dry_run ── encode, insert      in the service, inside the catalog's write transaction
driver    decode ── packers compiled, pickled          once per batch (decoding: per version)
worker    packers unpickled, per partition
bucket    control record decoded ── activate (compiled, rows migrated) ── plan encoded into the state
          plan decoded, compiled                       the next batch, in a worker that does not know it
"""

from __future__ import annotations

import pickle
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from catalog.store.codec import decode, encode
from catalog.store.store import Store
from catalog.values.plan import ControlRecord, Plan
from operators.bucket.bucket import Bucket
from operators.bucket.bucket_state import encode_plan
from operators.bucket.dry_run import dry_run
from operators.pack.pack_plan import pack_plan
from planner.build.build_plan import build_plan
from service.config.data_dir import open_data_dir
from tests.bench.measuring import median_ms
from tests.bench.migration.load import Load

REPEATS = 5


@dataclass(frozen=True, slots=True)
class VersionCost:
    """Milliseconds of CPU, medians.

    Attributes:
        queries: Running queries.
        plan_bytes: Length of the plan's document.
        packer_bytes: Pickled packers of both streams.
        build_ms: build_plan, checks included.
        dry_run_ms: dry_run.
        insert_ms: Encoding and inserting the version.
        decode_ms: Decoding the plan's document.
        record_ms: Encoding the control record for the buckets.
        packers_ms: Compiling and pickling the packers of both streams.
        unpickle_ms: Unpickling them.
        activate_ms: A bucket without rows puts the version in force.
        compile_ms: Compiling its families anew, as the next batch's worker does.
        state_ms: Encoding the plan into the state.
    """

    queries: int
    plan_bytes: int
    packer_bytes: int
    build_ms: float
    dry_run_ms: float
    insert_ms: float
    decode_ms: float
    record_ms: float
    packers_ms: float
    unpickle_ms: float
    activate_ms: float
    compile_ms: float
    state_ms: float

    @property
    def request_ms(self) -> float:
        """What a request takes of the service's core, besides HTTP."""
        return self.build_ms + self.dry_run_ms + self.insert_ms

    @property
    def bucket_ms(self) -> float:
        """What a version costs each bucket, this batch and the next, without its rows."""
        return 2 * self.decode_ms + self.activate_ms + self.state_ms + self.compile_ms


def version_cost(queries: int, repeats: int = REPEATS) -> VersionCost:
    """Measure versions that each add one query to many."""
    load = Load(queries=queries)
    streams = {s.id: s for s in load.streams(1).values()}
    running = load.bound_queries
    previous = build_plan(running, streams)
    added = [
        load.bound(load.coming_and_going(n), queries + 1 + n, "state" if n % 2 else "none")
        for n in range(repeats)
    ]
    plan = build_plan((*running, added[0]), streams, previous)
    document = encode(plan)
    packers = [pickle.dumps(pack_plan(plan, s, 2)) for s in plan.streams]
    buckets = [_bucket(previous) for _ in range(repeats)]
    return VersionCost(
        queries=queries,
        plan_bytes=len(document),
        packer_bytes=sum(map(len, packers)),
        build_ms=median_ms(lambda n: build_plan((*running, added[n]), streams, previous), repeats),
        dry_run_ms=median_ms(lambda n: dry_run(previous, plan), repeats),
        insert_ms=_insert_ms(previous, plan, repeats),
        decode_ms=median_ms(lambda n: decode(Plan, document), repeats),
        record_ms=median_ms(lambda n: encode(ControlRecord(seq=2, plan=plan)), repeats),
        packers_ms=median_ms(lambda n: [pickle.dumps(pack_plan(plan, s, 2)) for s in plan.streams], repeats),
        unpickle_ms=median_ms(lambda n: [pickle.loads(data) for data in packers], repeats),
        activate_ms=median_ms(lambda n: buckets[n].activate(plan), repeats),
        compile_ms=median_ms(lambda n: [buckets[n].compile(f, plan) for f in plan.families], repeats),
        state_ms=median_ms(lambda n: encode_plan(plan), repeats),
    )


def _bucket(plan: Plan) -> Bucket:
    bucket = Bucket()
    bucket.activate(plan)
    return bucket


def _insert_ms(previous: Plan, plan: Plan, repeats: int) -> float:
    """Insert into a fresh catalog each time: a version goes in once."""
    with ExitStack() as stack:
        stores = []
        for _ in range(repeats):
            root = stack.enter_context(tempfile.TemporaryDirectory(prefix="sluice-version-"))
            stores.append(stack.enter_context(Store.open(open_data_dir(Path(root)).catalog_url)))
            stores[-1].control_log.append(plan=previous)
        return median_ms(lambda n: stores[n].control_log.append(plan=plan), repeats)

"""One soak: the service, its load, readers, visitors and sampler, until everything posted has been read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tests.bench.feeding import COLUMNS, SELECTED, STREAMS, Feeder, Follower, LiveRows, now_us
from tests.bench.loaded import loaded_service
from tests.bench.soak.queries import STANDING, Phase
from tests.bench.soak.readers import EventFollower, Sweeper
from tests.bench.soak.sampler import Sampler
from tests.bench.soak.visitors import Visitors

#: Queries whose latency is measured: a small window, a large one, and one by server-sent events.
PAGED, EVENTS = ("standing2", "standing20"), "standing12"
FOLLOWED = (*PAGED, EVENTS)
#: How long results are kept.
RETENTION_S = 600
#: Rows are up to so much out of order, which is less than the lateness of their stream.
DISORDER_US = 300_000
#: Keys per row a second and stream: rates of results then do not depend on how much the machine can take.
KEYS_PER_RATE = 200
#: How long the service may take for what is left when the load ends.
_REST_S = 300.0
_SEED = 61


@dataclass(frozen=True, slots=True, eq=False)
class Soaked:
    """What a soak has recorded.

    Attributes:
        rows: The rows.
        posted: Requests of each stream, ``POSTED``.
        phases: Phases of each query, standing and visiting.
        pairs: Results that were read of each, ``PAIR``.
        samples: What the sampler saw.
        batches: Batches that were committed.
    """

    rows: LiveRows
    posted: Mapping[str, np.ndarray]
    phases: Mapping[str, tuple[Phase, ...]]
    pairs: Mapping[str, np.ndarray]
    samples: pd.DataFrame
    batches: pd.DataFrame


def soak(duration_s: float, rate_per_s: int, directory: Path, change_every_s: float = 5.0) -> Soaked:
    """Run the service under load and record everything.

    Args:
        duration_s: How long rows are posted.
        rate_per_s: Rows of each stream per second.
        directory: For data and log of the service.
        change_every_s: Between two changes of queries.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (
        loaded_service(directory, SLUICE_RESULT_RETENTION=f"{RETENTION_S}s") as loaded,
        ExitStack() as stack,
    ):
        loaded.service.register(COLUMNS, *STREAMS, lateness="1s")
        loaded.add_all({name: query.cql(SELECTED) for name, query in STANDING.items()})
        rows = LiveRows(now_us(), rate_per_s, rate_per_s * KEYS_PER_RATE, DISORDER_US)
        visitors = Visitors(loaded, change_every_s, _SEED)
        sampler = Sampler(loaded)
        followers = {name: Follower(loaded.root, name) for name in PAGED}
        followers[EVENTS] = EventFollower(loaded.root, EVENTS)
        sweeper = Sweeper(loaded.root, [name for name in STANDING if name not in FOLLOWED], visitors)
        feeders = {name: Feeder(loaded.root, rows, name) for name in STREAMS}
        readers = [sampler, *followers.values(), sweeper]
        # Those entered first are stopped last: they see the end of the input.
        for reader in readers:
            stack.enter_context(reader)
        a, b = feeders.values()
        with visitors, a, b:
            while time.time() < rows.start_us / 1e6 + duration_s:
                time.sleep(min(1.0, duration_s))
                for worker in (*readers, visitors, a, b):
                    worker.check()
        loaded.wait_for_rows(a.end + b.end, _REST_S)
    pairs = {name: follower.reading.pairs for name, follower in followers.items()}
    pairs |= {name: reading.pairs for name, reading in sweeper.readings.items()}
    return Soaked(
        rows=rows,
        posted={name: feeder.posted for name, feeder in feeders.items()},
        phases={name: (Phase(query, "state", 0),) for name, query in STANDING.items()} | visitors.phases,
        pairs=pairs,
        samples=pd.DataFrame(sampler.samples),
        batches=pd.DataFrame(sampler.batches),
    )

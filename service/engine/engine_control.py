"""Control of the engine by other processes: requests to the engine, and its status, are in the catalog.

    API      wish    ── setting "engine_wish"   ──>  engine   polls the wish, and follows it
    API    <── setting "engine_status" ── status     engine   writes each change of its status
           <── the lease: shows whether there is an engine

A request stays in force for later engines: an engine that starts after a pause was requested does not start
its job.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeVar

from catalog.documents.codec import decode, encode
from catalog.store.lease import Lease
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from service.errors import NothingToSkip
from service.inputs.reading.voided import VoidedBatch, void_batch

_WISH: Final = "engine_wish"
_STATUS: Final = "engine_status"

#: Seconds for which a request waits until the engine has followed it. The engine may first have to end a
#: batch and Spark.
FOLLOW_TIMEOUT_S: Final = 30.0
_LOOK_S: Final = 0.05

EngineState = Literal["standby", "starting", "running", "paused", "failed", "stopped"]
WantedState = Literal["running", "paused"]


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """State of the engine, as the engine reports it.

    Attributes:
        state: State as in the picture in ``service.engine.engine``, or ``standby`` while the engine waits for
            the lease.
        since_us: Wall clock of the last change of state, µs UTC.
        run_id: Id of the run of the Spark query, new at every restart; empty before the first run.
        error: Why the job failed, kept while the job starts again, or None if it has not failed.
        spark_ui: Address of Spark's own page, or None.
        failures: How many times in a row the current batch has failed in the same way; 0 while the job runs.
        failing: Number of the batch that was begun and has failed last, or None. It can be voided.
        retry_at_us: When a failed job will be started again, µs UTC; None if it has not failed or a person
            must act.
        token: Token of the lease that the reporting engine holds; empty if it holds none.
        followed: Number of the last request (``EngineWish``) that the engine has followed.
    """

    state: EngineState = "stopped"
    since_us: int = 0
    run_id: str = ""
    error: str | None = None
    spark_ui: str | None = None
    failures: int = 0
    failing: int | None = None
    retry_at_us: int | None = None
    token: str = ""
    followed: int = 0


@dataclass(frozen=True, slots=True)
class EngineWish:
    """State that clients have requested of the engine.

    Attributes:
        state: Requested state.
        number: Number of the last request: 0 before any request, then 1, 2, ...
        restart: Number of the last request to stop the job and start it again.
    """

    state: WantedState = "running"
    number: int = 0
    restart: int = 0


_Value = TypeVar("_Value", EngineStatus, EngineWish)


def wish_of(store: Store) -> EngineWish:
    """Return the requested state of the engine; without any request, it is ``running``."""
    return _read(store, _WISH, EngineWish)


def report(store: Store, status: EngineStatus) -> None:
    """Publish the engine's status in the catalog.

    Raises:
        FencedOut: Another engine has the lease.
    """
    store.settings.set(_STATUS, encode(status).decode())


@dataclass(slots=True)
class EngineControl:
    """Control of a catalog's engine, which may run in another process; thread-safe.

    Attributes:
        store: Catalog.
        clock_s: Monotonic clock.
        own: Returns the status of the engine in this process; None if no engine runs here. It is needed while
            the engine cannot write its status to the catalog, for example on a full disk.
    """

    store: Store
    clock_s: Callable[[], float] = time.monotonic
    own: Callable[[], EngineStatus] | None = None
    _seen: tuple[Lease | None, float] = field(default=(None, 0.0), init=False)

    def status(self) -> EngineStatus:
        """Return the engine's status, which is ``stopped`` if no engine holds and renews the lease."""
        lease, now_s = self.store.lease.current(), self.clock_s()
        found = _read(self.store, _STATUS, EngineStatus)
        if lease is None or not lease.token:
            return _without_engine(found, None)
        seen, since_s = self._seen
        if lease != seen:
            self._seen = seen, since_s = lease, now_s
        if now_s - since_s > lease.expiry_ms / 1000:
            if self.own is not None and (own := self.own()).token == lease.token:
                return replace(own, followed=found.followed)
            who = f"Process {lease.holder.pid} on {lease.holder.host}"
            return _without_engine(found, f"{who} has not renewed its lease for {now_s - since_s:.0f} s.")
        if found.token != lease.token:
            return EngineStatus("starting", found.since_us, token=lease.token)
        return found

    def want(self, state: WantedState, *, restart: bool = False) -> None:
        """Request a state of the engine. If an engine is active, wait a while until it has followed.

        Args:
            state: Requested state.
            restart: Whether the engine stops the job first.
        """
        self._await(self._write_wish(state, restart=restart))

    def skip(self, stream_ids: tuple[int, ...], actor: str) -> VoidedBatch:
        """Void the batch that fails: it is processed without the rows of some streams.

        Args:
            stream_ids: Streams whose rows are left out of the batch; if empty, all streams.
            actor: Name of the client that decides.

        Raises:
            NothingToSkip: No batch was begun, or the batch has not failed.
        """
        with self.store.transaction():
            status, last = self.status(), self.store.batches.last()
            batch = 0 if last is None else last + 1
            if status.failing != batch:
                raise NothingToSkip(
                    "no batch can be skipped",
                    detail=f"Batch {batch} has not failed since it was begun.",
                    hint="GET /api/v1/engine shows the state of the job.",
                )
            voided = VoidedBatch(batch, stream_ids, status.error or "", actor, wall_clock_us())
            void_batch(self.store, voided)
            number = self._write_wish("running", restart=True)
        self._await(number)
        return voided

    def _write_wish(self, state: WantedState, *, restart: bool) -> int:
        with self.store.transaction():
            before = wish_of(self.store)
            number = before.number + 1
            wish = EngineWish(state, number, number if restart else before.restart)
            self.store.settings.set(_WISH, encode(wish).decode())
        return number

    def _await(self, number: int) -> None:
        until_s = self.clock_s() + FOLLOW_TIMEOUT_S
        while self.clock_s() < until_s:
            status = self.status()
            if status.followed >= number or not status.token:
                return
            time.sleep(_LOOK_S)


def _without_engine(last: EngineStatus, why: str | None) -> EngineStatus:
    return replace(last, state="stopped", error=why, retry_at_us=None, failing=None, token="")


def _read(store: Store, key: str, kind: type[_Value]) -> _Value:
    found = store.settings.get(key)
    return kind() if found is None else decode(kind, str(found))

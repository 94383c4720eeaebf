"""Checks of ``sluice doctor``: the machine, the directories and databases of a service, and its port.

A missing data directory is not created, and a catalog of an older version is not migrated. To check that a
directory is writable, a file is created there and removed. Missing folders of a separate storage are created.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import httpx
import psutil
from rich.table import Table
from rich.text import Text

from catalog.errors import CatalogDown, CatalogVersionMismatch, SluiceError
from catalog.store.store import Store
from catalog.times.clock import wall_clock_us
from operators.storage.folder import check_writable
from service.config.settings import Settings
from service.inputs.limits.disk_space import DiskSpace, shown_bytes
from service.jvm.java import OLDEST_JAVA, use_java
from service.recovery.identity import identity_of
from service.recovery.opening import CATALOG_DOWN_HINT, open_catalog, refuse_missing, sqlite_file

#: Maximum seconds by which the times of the newest batch and of a file server may differ from this machine's
#: clock.
SKEW_S: Final = 5.0
#: Seconds within which a service must answer.
ANSWER_S: Final = 3.0

State = Literal["ok", "warning", "problem"]
_COLOURS: Final[dict[State, str]] = {"ok": "green", "warning": "yellow", "problem": "bold red"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check.

    Attributes:
        part: What was checked, in a word or two, such as ``data directory``.
        state: ``problem`` if a service would not start or would fail, ``warning`` if it may have trouble,
            else ``ok``.
        told: What was found, in a sentence.
        hint: Advice, in a sentence, or None if no action is needed.
    """

    part: str
    state: State
    told: str
    hint: str | None = None


def examine(settings: Settings) -> Iterator[Finding]:
    """Check everything that a service needs, and yield the findings one after the other.

    Args:
        settings: Settings with which the service would start.
    """
    checks: tuple[tuple[str, Callable[[Settings], Iterator[Finding]]], ...] = (
        ("versions", _versions),
        ("Java", _java),
        ("cores", _cores),
        ("memory", _memory),
        ("data directory", _directory),
        ("disk", _disk),
        ("catalog", _catalog),
        ("storage", _storage),
        ("port", _port),
    )
    for part, check in checks:
        try:
            yield from check(settings)
        except (SluiceError, OSError) as error:
            yield _failed(part, error)


def _failed(part: str, error: SluiceError | OSError) -> Finding:
    if isinstance(error, SluiceError):
        told = " ".join(filter(None, (f"{error.primary}.", error.detail)))
        return Finding(part, "problem", told[:1].upper() + told[1:], error.hint)
    where = f": {error.filename}" if error.filename else ""
    return Finding(part, "problem", f"{error.strerror or error}{where}.")


def _versions(settings: Settings) -> Iterator[Finding]:
    sluice, spark = (importlib.metadata.version(name) for name in ("sluice", "pyspark"))
    yield Finding("versions", "ok", f"Sluice {sluice}, Python {platform.python_version()}, PySpark {spark}.")


def _java(settings: Settings) -> Iterator[Finding]:
    yield Finding("Java", "ok", f"Java {OLDEST_JAVA} or newer at {use_java()}.")


def _cores(settings: Settings) -> Iterator[Finding]:
    usable, wanted = len(os.sched_getaffinity(0)), settings.spark.cores
    if settings.spark.one_machine and wanted > usable:
        yield Finding(
            "cores",
            "warning",
            f"Spark is set to use {wanted} cores, but this process may use only {usable}.",
            "Set SLUICE_CORES to the number of cores that the container or cgroup grants.",
        )
    else:
        yield Finding("cores", "ok", f"{wanted} of {usable}, Spark at {settings.spark.master}.")


def _memory(settings: Settings) -> Iterator[Finding]:
    free = psutil.virtual_memory().available
    workers = settings.spark.cores if settings.spark.one_machine else 0
    needed = settings.spark.driver_memory_bytes + workers * (settings.state.cache_mb << 20)
    told = f"{shown_bytes(free)} are free; the JVM and the workers' caches may take {shown_bytes(needed)}."
    if needed > free:
        hint = "Decrease SLUICE_CACHE_MB (MB for each worker) or SLUICE_CORES."
        yield Finding("memory", "warning", told, hint)
    else:
        yield Finding("memory", "ok", told)


def _existing(path: Path) -> Path:
    return next(each for each in (path, *path.parents) if each.exists())


def _directory(settings: Settings) -> Iterator[Finding]:
    data_dir = settings.storage.find_data_dir()
    existing = _existing(data_dir.root)
    data_dir.check_writable()
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"sluice doctor")
            file.flush()
            ahead_s = os.fstat(file.fileno()).st_mtime - time.time()
    except OSError as error:
        told = f"{existing} cannot be written: {error.strerror or error}."
        hint = "Free some space, or name a directory that you may write to with --data-dir."
        yield Finding("data directory", "problem", told, hint)
        return
    if abs(ahead_s) > SKEW_S:
        which = "ahead of" if ahead_s > 0 else "behind"
        told = f"The file system of {existing} is {abs(ahead_s):.0f} s {which} this machine."
        yield Finding("clock", "warning", told, "Synchronize both clocks.")
    made = "" if existing == data_dir.root else " It is created at the first start."
    yield Finding("data directory", "ok", f"{data_dir.root} can be written.{made}")


def _disk(settings: Settings) -> Iterator[Finding]:
    space = DiskSpace(_existing(settings.storage.find_data_dir().root), settings.ingest.min_free_mb)
    told = space.told(space.least_bytes)
    hint = "Free some space, or decrease SLUICE_MIN_FREE_MB."
    if space.is_out:
        yield Finding("disk", "problem", f"{told} Batches take no input.", hint)
    elif space.is_low:
        yield Finding("disk", "problem", f"{told} Posted events are refused.", hint)
    else:
        yield Finding("disk", "ok", told)


def _catalog(settings: Settings) -> Iterator[Finding]:
    data_dir, url = settings.storage.find_data_dir(), settings.storage.effective_catalog_url
    refuse_missing(data_dir, url)
    file = sqlite_file(url)
    if file is not None and not file.exists():
        if settings.storage.catalog_url is not None and not file.parent.is_dir():
            yield Finding("catalog", "problem", f"There is no directory {file.parent}.", CATALOG_DOWN_HINT)
        else:
            yield Finding("catalog", "ok", "There is no catalog yet; it is created at the first start.")
        return
    try:
        store = Store.open(url, migrate=False)
    except CatalogVersionMismatch as error:
        yield Finding("catalog", "warning", f"The {error.primary}.", error.hint)
        return
    except CatalogDown as error:
        yield replace(_failed("catalog", error), hint=error.hint or CATALOG_DOWN_HINT)
        return
    with closing(store):
        identity = identity_of(store)
        lease, manifest = store.lease.current(), store.batches.last_manifest()
        streams, queries = len(store.streams.all()), len(store.queries.all())
    # The catalog is opened in full only if that changes nothing, because opening writes missing identities
    # and can create a directory on a new machine.
    if identity is not None and identity.settled and data_dir.identity.exists():
        open_catalog(data_dir, settings.storage.catalog_url).close()
    holder = "No engine holds the catalog's lease."
    if lease is not None and lease.token:
        holder = f"Process {lease.holder.pid} on {lease.holder.host} holds the catalog's lease."
    yield Finding("catalog", "ok", f"Streams: {streams:,}, queries: {queries:,}. {holder}")
    if manifest is not None:
        yield _clock(manifest.batch, manifest.committed_at_us)


def _clock(batch: int, committed_at_us: int) -> Finding:
    ahead_s = (committed_at_us - wall_clock_us()) / 1e6
    if ahead_s > SKEW_S:
        return Finding(
            "clock",
            "warning",
            f"Batch {batch:,} has a commit time {ahead_s:,.0f} s in the future: the clock was set back.",
            "Synchronize the clock, because retention and the age of statistics depend on it.",
        )
    return Finding("clock", "ok", f"The newest batch, {batch:,}, was committed {-ahead_s:,.0f} s ago.")


def _storage(settings: Settings) -> Iterator[Finding]:
    data_dir = settings.storage.find_data_dir()
    if data_dir.storage is not None:
        check_writable((data_dir.segments, data_dir.results))
        yield Finding("storage", "ok", f"{data_dir.storage.url} can be written.")


def _port(settings: Settings) -> Iterator[Finding]:
    host, port = settings.server.host, settings.server.port
    where = f"{host}:{port}"
    if not port:
        return
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if (ready := _answer(settings)) is not None:
            yield ready
        else:
            told = f"A service cannot listen on {where}: {error.strerror or error}."
            yield Finding("port", "problem", told, "Name another port (--port) or address (--host).")
        return
    yield Finding("port", "ok", f"{where} is free.")


def _answer(settings: Settings) -> Finding | None:
    """Return the finding about a Sluice service on the port, or None if no Sluice service answers."""
    scheme = "http" if settings.access.tls_cert is None else "https"
    host = f"[{settings.server.host}]" if ":" in settings.server.host else settings.server.host
    url = f"{scheme}://{host}:{settings.server.port}/health/ready"
    try:
        # The certificate is not checked, because the request contains no secrets.
        found = httpx.get(url, timeout=ANSWER_S, verify=False)
        body = found.json()
    except (httpx.HTTPError, ValueError):
        return None
    if not isinstance(body, dict):
        return None
    if found.is_success and body.get("status") in ("ok", "standby"):
        return Finding("port", "ok", f"A service of Sluice answers on {url}: {body['status']}.")
    if body.get("code") != "engine-not-ready":
        return None
    told = f"A service of Sluice answers on {url}, and {body.get('detail', 'is not ready')}."
    return Finding(
        "port", "problem", " ".join(filter(None, (told, body.get("explanation")))), body.get("hint")
    )


def table(findings: Iterable[Finding]) -> Table:
    """Return the findings as a table; ``rich`` fits it to the terminal."""
    shown = Table.grid(padding=(0, 2))
    for finding in findings:
        hint = "" if finding.hint is None else f"\nhint: {finding.hint}"
        state = Text(finding.state, _COLOURS[finding.state])
        shown.add_row(state, Text(finding.part, no_wrap=True), Text(finding.told + hint))
    return shown

"""What other processes do in the catalog's tests; importable, so that they can be spawned."""

from __future__ import annotations

import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from catalog.errors import InvariantBroken
from catalog.store.store import Store
from catalog.values.control import Heartbeat
from tests.catalog.examples import manifest, plan
from tests.epochs import begin_epoch

#: Children are forked from a process that has imported this module and opened nothing: imports take a second.
SPAWN = multiprocessing.get_context("forkserver")
SPAWN.set_forkserver_preload(["tests.catalog.processes"])

#: Far longer than any of these processes needs, also on a busy machine.
TIMEOUT_S = 120


def append_in_pairs(url: str, count: int) -> None:
    """Append pairs of a plan and a heartbeat, and a batch with each, in one transaction a pair."""
    with Store.open(url) as store:
        for n in range(count):
            with store.transaction():
                store.control_log.append(plan=plan(n + 1, queries=3))
                store.control_log.append(heartbeat=Heartbeat(1, n))
                store.batches.commit(manifest(n, 1, {7: 1}))


def append_heartbeats(url: str, writer: int, count: int) -> None:
    """Append heartbeats that name their writer and count up."""
    with Store.open(url, migrate=False) as store:
        for n in range(count):
            store.control_log.append(heartbeat=Heartbeat(writer, n))


def open_and_register(url: str, ready: Connection) -> None:
    """Open a catalog that may not exist yet, at the same moment as others."""
    ready.send("ready")
    ready.recv()
    with Store.open(url) as store:
        ready.send(begin_epoch(store))


def die_in_a_transaction(url: str) -> None:
    """Be killed between the writes and the commit."""
    with Store.open(url) as store, store.transaction():
        store.control_log.append(plan=plan(1))
        os.kill(os.getpid(), signal.SIGKILL)


def fork_and_use(url: str, answer: Connection) -> None:
    """Use a store in a forked child of this process, then here again."""
    with Store.open(url) as store:
        store.control_log.append(plan=plan(1))
        child = os.fork()
        if child == 0:
            try:
                store.control_log.head()
            except InvariantBroken as error:
                answer.send(error.primary)
            else:
                answer.send("it worked")
            store.close()
            os._exit(0)
        os.waitpid(child, 0)
        answer.send(store.control_log.append(plan=plan(2)).seq)


def finished(process: BaseProcess) -> int | None:
    """Wait for a process and return its exit code."""
    process.join(TIMEOUT_S)
    return process.exitcode

"""Fork server: imports the modules of Spark's Python processes once, and forks a child for each process.

    engine ─┬─ JVM ──────── python_launcher ┐ sends its pipes, environment and arguments to the child
            └─ fork server ──────── child ──┘ runs the module that Spark has named

Before the first row is read, Spark starts seven Python processes, one after the other. Each of them unpickles
the source or the chain, which needs 3.8 s of imports while all other work waits. The fork server does these
imports while the JVM starts, on an otherwise idle core.

The child is an ordinary process, but has the pipes of the process that Spark started (``python_launcher``).
That process only waits for the child's end.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import runpy
import select
import signal
import socket
import sys
import traceback

from pyspark import daemon
from pyspark.sql.streaming import python_streaming_source_runner, transform_with_state_driver_worker
from pyspark.sql.worker import create_data_source, lookup_data_sources, plan_data_source_read

from service.job import source
from service.job.workers import worker_daemon
from service.jvm.python_launcher import PID_BYTES

#: Modules imported here only so that the children have them.
LOADED = (
    create_data_source,
    daemon,
    lookup_data_sources,
    plan_data_source_read,
    python_streaming_source_runner,
    source,
    transform_with_state_driver_worker,
    worker_daemon,
)

_CHUNK_BYTES = 1 << 16
#: Option of Linux's ``prctl`` that names a process. Linux cuts names after 15 bytes.
_PR_SET_NAME = 15


def serve(listener: socket.socket) -> None:
    """Run a module in a child for each request, until stdin is closed because the engine has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the exit status of children is not needed here
    poller = select.poll()
    poller.register(0, select.POLLIN)
    poller.register(listener.fileno(), select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poller.poll()}
        if 0 in ready:
            return
        asking, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            _run(asking)
        asking.close()


def _run(asking: socket.socket) -> None:
    """Become the process for which ``python_launcher`` has asked: take its pipes and run its module."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, pipes, _, _ = socket.recv_fds(asking, _CHUNK_BYTES, 3)
    while not data.endswith(b"\n"):
        data += asking.recv(_CHUNK_BYTES)
    asked = json.loads(data)
    asking.sendall(os.getpid().to_bytes(PID_BYTES, "big"))
    for mine, theirs in enumerate(pipes):
        os.dup2(theirs, mine)
        os.close(theirs)
    os.chdir(asked["directory"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    module, *arguments = asked["arguments"]
    _name_process(module.rpartition(".")[2])
    sys.argv = ["", *arguments]
    sys.modules.pop(module, None)  # it runs as "__main__"
    status = _status_of(module)
    asking.sendall(bytes([status & 0xFF]))
    # End without the interpreter's clean-up, which would clean up modules of the server.
    os._exit(status)


def _status_of(module: str) -> int:
    """Run a module as a program and return its exit status."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def _name_process(name: str) -> None:
    """Name this process and those that it forks, so that tools such as ``ps -o comm`` distinguish them."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as inherited:
        worker_daemon.keep_freed_memory()
        gc.collect()
        gc.freeze()
        serve(inherited)

"""Launcher that Spark starts as its Python: it lets a child of the engine's fork server run a module.

    python_launcher.py PYTHON -m MODULE ARGUMENTS...

Without a fork server, it becomes the interpreter PYTHON, which runs the module. The launcher runs without
packages (``-I -S``) and without code of Sluice, so that it starts within 30 ms.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

#: Environment variable that names the fork server's socket.
FORK_SERVER = "SLUICE_FORK_SERVER"
#: Number of bytes in which a child sends its process id, before it sends its exit status.
PID_BYTES = 4


def handed_over(address: str, arguments: list[str]) -> int | None:
    """Let a child of a fork server run a module with this process's pipes, and wait for its end.

    Args:
        address: Path of the fork server's socket.
        arguments: Name of the module, and the module's arguments.

    Returns:
        The child's exit status, or None if no server listens at the address.
    """
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
        except OSError:
            return None
        asked = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
        data = json.dumps(asked).encode() + b"\n"
        # From now on there may be a child, so SIGTERM is blocked until it can be forwarded to the child.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        server.sendall(data[socket.send_fds(server, [data], [0, 1, 2]) :])
        # Only the bytes of the id are read, because a child that ends fast may already have sent its status.
        child = int.from_bytes(server.recv(PID_BYTES, socket.MSG_WAITALL), "big")
        # Spark ends this process by a signal, so the signal is forwarded to the child.
        signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number) if child else None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        status = server.recv(1)  # empty if the child was killed
    return status[0] if status else 1


if __name__ == "__main__":
    _, python, *arguments = sys.argv
    address = os.environ.get(FORK_SERVER)
    status = handed_over(address, arguments[1:]) if address and arguments[:1] == ["-m"] else None
    if status is None:
        os.execv(python, [python, *arguments])
    sys.exit(status)

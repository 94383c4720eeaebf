"""Python launcher for Spark: runs a module in a child of the engine's fork server, else in the interpreter.

    python_launcher.py PYTHON -m MODULE ARGUMENTS...

It runs without packages (``-I -S``), so that it starts within 30 ms, and imports no Sluice code.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

#: Environment variable that names the fork server's socket.
FORK_SERVER = "SLUICE_FORK_SERVER"
#: Bytes of a child's process id, which the fork server sends before the child's status.
PID_BYTES = 4


def handed_over(address: str, arguments: list[str]) -> int | None:
    """Let a child of a fork server run a module with this process's pipes, and wait for its end.

    Args:
        address: The fork server's socket.
        arguments: Module and its arguments.

    Returns:
        The child's exit status; None if no server listens at the address.
    """
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
        except OSError:
            return None
        asked = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
        data = json.dumps(asked).encode() + b"\n"
        # From now on there may be a child: block the signal until it can be forwarded.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        server.sendall(data[socket.send_fds(server, [data], [0, 1, 2]) :])
        # A child that ends immediately may have sent its status, too, by the time of this read.
        child = int.from_bytes(server.recv(PID_BYTES, socket.MSG_WAITALL), "big")
        # Spark ends this process by its id, so forward the signal to the child.
        signal.signal(signal.SIGTERM, lambda number, _: os.kill(child, number) if child else None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        status = server.recv(1)  # none if it was killed
    return status[0] if status else 1


if __name__ == "__main__":
    _, python, *arguments = sys.argv
    address = os.environ.get(FORK_SERVER)
    status = handed_over(address, arguments[1:]) if address and arguments[:1] == ["-m"] else None
    if status is None:
        os.execv(python, [python, *arguments])
    sys.exit(status)

"""Python as Spark starts it: a child of the engine's fork server takes over, or the interpreter itself does.

    python_launcher.py PYTHON -m MODULE ARGUMENTS...

Started without packages (``-I -S``), so that it is there within 30 ms; it imports nothing of ours.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

#: Environment variable that names the fork server's socket.
FORK_SERVER = "SLUICE_FORK_SERVER"
#: Bytes in which the fork server tells a child's process id, before its status.
PID_BYTES = 4


def handed_over(address: str, arguments: list[str]) -> int | None:
    """Let a child of a fork server run a module with our pipes, and wait for its end.

    Args:
        address: The fork server's socket.
        arguments: Module and its arguments.

    Returns:
        The child's exit status; None if there is no such server.
    """
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(address)
        except OSError:
            return None
        asked = {"arguments": arguments, "directory": os.getcwd(), "environment": dict(os.environ)}
        data = json.dumps(asked).encode() + b"\n"
        # From now on there may be a child: a signal waits until it can be passed on.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        server.sendall(data[socket.send_fds(server, [data], [0, 1, 2]) :])
        # A child that ends at once has said its status, too, by the time that we look.
        child = int.from_bytes(server.recv(PID_BYTES, socket.MSG_WAITALL), "big")
        # Spark ends what it started by its process id.
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

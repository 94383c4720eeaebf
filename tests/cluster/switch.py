"""The switch: a bridge in a network namespace of its own, told on its input what to do.

    plug <host> <pid> <address>    the process's network gets an interface with the address, on the bridge
    cut <host>    mend <host>      takes its cable out, and puts it back
    relay <host> <port>            opens a port of this machine that leads to the host's; answers which

It ends when its input does.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import socket
import sys
import threading
from contextlib import suppress

from pyroute2 import IPRoute, NetNS

_CLONE_NEWNET = 0x40000000
_BRIDGE = "switch"
_PREFIX = 24


def _libc(call: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, call)(*arguments) != 0:
        problem = ctypes.get_errno()
        raise OSError(problem, f"{call}: {os.strerror(problem)}")


class Switch:
    """The bridge, and the relays into it.

    Args:
        address: Its own address among the hosts.
    """

    def __init__(self, address: str) -> None:
        self._outside = os.open("/proc/self/ns/net", os.O_RDONLY)
        _libc("unshare", _CLONE_NEWNET)
        self._inside = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        self._addresses: dict[str, str] = {}
        self._route = IPRoute()
        self._route.link("add", ifname=_BRIDGE, kind="bridge")
        self._up(self._route, "lo")
        self._route.addr("add", index=self._index(_BRIDGE), address=address, prefixlen=_PREFIX)
        self._up(self._route, _BRIDGE)

    def plug(self, host: str, pid: str, address: str) -> None:
        """Lead a cable from the bridge to a host."""
        self._addresses[host] = address
        peer = {"ifname": "eth0", "net_ns_pid": int(pid)}
        self._route.link("add", ifname=host, kind="veth", peer=peer)
        self._route.link("set", index=self._index(host), master=self._index(_BRIDGE))
        with NetNS(f"/proc/{pid}/ns/net", flags=os.O_RDONLY) as there:
            self._up(there, "lo")
            (index,) = there.link_lookup(ifname="eth0")
            there.addr("add", index=index, address=address, prefixlen=_PREFIX)
            self._up(there, "eth0")
        self.mend(host)

    def cut(self, host: str) -> None:
        """Take a host's cable out: what is sent is lost, and nobody is told."""
        self._route.link("set", index=self._index(host), master=0)

    def mend(self, host: str) -> None:
        """Put a host's cable back."""
        self._route.link("set", index=self._index(host), master=self._index(_BRIDGE))
        self._up(self._route, host)

    def relay(self, host: str, port: str) -> int:
        """Open a port of this machine that leads to a host's port; return it."""
        _libc("setns", self._outside, _CLONE_NEWNET)
        listener = socket.create_server(("127.0.0.1", 0))
        _libc("setns", self._inside, _CLONE_NEWNET)
        # Threads made from here on are inside the switch.
        _start(_accept, listener, (self._addresses[host], int(port)))
        return int(listener.getsockname()[1])

    def _index(self, name: str) -> int:
        (index,) = self._route.link_lookup(ifname=name)
        return int(index)

    def _up(self, route: IPRoute, name: str) -> None:
        (index,) = route.link_lookup(ifname=name)
        route.link("set", index=index, state="up")


def _start(run: object, *arguments: object) -> None:
    threading.Thread(target=run, args=arguments, daemon=True).start()


def _accept(listener: socket.socket, target: tuple[str, int]) -> None:
    while True:
        caller, _ = listener.accept()
        _start(_join, caller, target)


def _join(caller: socket.socket, target: tuple[str, int]) -> None:
    """Carry bytes both ways until either side ends."""
    with caller, suppress(OSError), socket.create_connection(target, timeout=10) as called:
        called.settimeout(None)
        others = {caller: called, called: caller}
        with selectors.DefaultSelector() as ready:
            for each in others:
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                ready.register(each, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select():
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    if not (data := one.recv(65536)):
                        return
                    others[one].sendall(data)


def main() -> None:
    switch = Switch(sys.argv[1])
    print("ready", flush=True)
    for line in sys.stdin:
        order, *words = line.split()
        print(getattr(switch, order)(*words), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()

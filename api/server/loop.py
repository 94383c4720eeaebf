"""The server's event loop: uvloop, the default of uvicorn, with limits for TLS handshakes.

Until its TLS handshake ends, a connection has no protocol object that could time or count it
(``api.server.connections``). uvloop alone would allow a handshake to take a minute.
"""

from __future__ import annotations

import ssl
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import uvloop

from api.server.connections import ConnectionLimits, LimitedProtocol

#: Name of the loop in uvicorn's setting ``loop``.
LOOP = f"{__name__}:HandshakeLoop"


class HandshakeLoop(uvloop.Loop):
    """A loop whose servers end slow TLS handshakes and refuse those above the connection limit.

    Attributes:
        handshake_s: Maximum seconds from the start of the connection to the end of its handshake.
    """

    handshake_s: ClassVar[float] = ConnectionLimits().head_s

    async def create_server(self, *arguments: Any, **options: Any) -> Any:  # Any: as uvloop takes them
        """Create a server; arguments as in the base class, the first is the protocol factory."""
        context = options.get("ssl")
        if context is not None:
            options.setdefault("ssl_handshake_timeout", self.handshake_s)
            handshakes = Handshakes(arguments[0])
            context.sslobject_class = type("CountedHandshake", (_Handshake,), {"handshakes": handshakes})
            arguments = (handshakes.protocol, *arguments[1:])
        return await super().create_server(*arguments, **options)


class Handshakes:
    """TLS handshakes in progress at one server, which count as connections.

    Args:
        factory: Function that makes the protocol object of a connection.
    """

    def __init__(self, factory: Callable[[], LimitedProtocol]) -> None:
        self._factory = factory
        self._newest: LimitedProtocol | None = None
        # Weak references: uvloop does not report handshakes that timed out or whose clients disconnected.
        self.under_way: weakref.WeakSet[ssl.SSLObject] = weakref.WeakSet()

    def protocol(self) -> LimitedProtocol:
        """Make the protocol of a connection when its handshake begins."""
        self._newest = self._factory()
        return self._newest

    def begin(self, handshake: ssl.SSLObject) -> None:
        """Count a handshake.

        Raises:
            SSLError: There are too many connections.
        """
        server = self._newest
        assert server is not None, "a protocol is made before its handshake begins"
        if len(server.connections) + len(self.under_way) >= server.limits.connections:
            server.tell_too_many()
            raise ssl.SSLError("there are too many connections")
        self.under_way.add(handshake)


class _Handshake(ssl.SSLObject):
    """TLS of one connection, counted until its handshake is over."""

    handshakes: ClassVar[Handshakes]

    def do_handshake(self) -> None:
        """Continue the handshake."""
        under_way = self.handshakes.under_way
        if self not in under_way:
            self.handshakes.begin(self)
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            under_way.discard(self)
            raise
        under_way.discard(self)

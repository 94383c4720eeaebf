"""The event loop of the server: uvicorn's usual one, with limits for TLS handshakes.

Until its handshake is over a connection has no protocol that could time or count it
(``api.server.connections``), and uvloop would let it take a minute.
"""

from __future__ import annotations

import ssl
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import uvloop

from api.server.connections import ConnectionLimits, LimitedProtocol

#: As uvicorn's setting ``loop`` names it.
LOOP = f"{__name__}:HandshakeLoop"


class HandshakeLoop(uvloop.Loop):
    """A loop whose servers end a TLS handshake that takes too long, and begin none beyond the connections.

    Attributes:
        handshake_s: Seconds that a handshake may take, from the connection on.
    """

    handshake_s: ClassVar[float] = ConnectionLimits().head_s

    async def create_server(self, *arguments: Any, **options: Any) -> Any:  # Any: as uvloop takes them
        """Create a server; arguments of the base class, the first one makes the protocol of a connection."""
        context = options.get("ssl")
        if context is not None:
            options.setdefault("ssl_handshake_timeout", self.handshake_s)
            handshakes = Handshakes(arguments[0])
            context.sslobject_class = type("CountedHandshake", (_Handshake,), {"handshakes": handshakes})
            arguments = (handshakes.protocol, *arguments[1:])
        return await super().create_server(*arguments, **options)


class Handshakes:
    """TLS handshakes that are under way at one server, which count among its connections.

    Args:
        factory: Makes the protocol of a connection.
    """

    def __init__(self, factory: Callable[[], LimitedProtocol]) -> None:
        self._factory = factory
        self._newest: LimitedProtocol | None = None
        # Weak: uvloop does not tell when one has taken too long, or its client has gone.
        self.under_way: weakref.WeakSet[ssl.SSLObject] = weakref.WeakSet()

    def protocol(self) -> LimitedProtocol:
        """Make the protocol of a connection whose handshake begins."""
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
        """Go on with the handshake."""
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

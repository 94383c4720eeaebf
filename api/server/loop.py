"""The event loop of the server: uvicorn's usual one, with less time for a TLS handshake.

Until its handshake is over a connection has no protocol that could time it (``api.server.connections``), and
uvloop would let it take a minute.
"""

from __future__ import annotations

from typing import Any, ClassVar

import uvloop

from api.server.connections import ConnectionLimits

#: As uvicorn's setting ``loop`` names it.
LOOP = f"{__name__}:HandshakeLoop"


class HandshakeLoop(uvloop.Loop):
    """A loop whose servers end a TLS handshake that takes too long.

    Attributes:
        handshake_s: Seconds that a handshake may take, from the connection on.
    """

    handshake_s: ClassVar[float] = ConnectionLimits().head_s

    async def create_server(self, *arguments: Any, **options: Any) -> Any:  # Any: as uvloop takes them
        """Create a server; arguments of the base class."""
        if options.get("ssl") is not None:
            options.setdefault("ssl_handshake_timeout", self.handshake_s)
        return await super().create_server(*arguments, **options)

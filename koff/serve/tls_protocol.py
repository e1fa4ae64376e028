"""Connections with TLS, under the same limits and deadlines as connections without.

asyncio would tell the protocol of a connection only after the handshake. A client that never sends its part
of the handshake would then count for no limit. Here, the connection counts from the moment it is accepted,
and the handshake and the first request together have the deadline of a request.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl

from koff.serve.protocol import GuardedProtocol
from koff.serve.tls import ServerTls

HANDSHAKE_S = 15.0
"""Longer than the deadline of a request, which ends the handshake. Then asyncio gives up, too."""
CLOSE_S = 2.0
"""So long a client has to say that it has seen the end of the connection."""


class GuardedTlsProtocol(GuardedProtocol):
    """One connection with TLS. `find_tls` returns what is valid for connections that are made now."""

    def __init__(self, *args: Any, find_tls: Callable[[], ServerTls], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tls = find_tls()
        self._is_encrypted = self._is_lost = False
        self._early: list[bytes] = []
        """What arrived after the handshake, but before koff knew of its end."""
        self._handshake: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if not self._is_given_up:
            self._handshake = self.loop.create_task(self._shake_hands(transport))

    def refuse(self) -> None:
        """Closes the connection: nothing can be said before the handshake."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_encrypted:
            super().data_received(data)
        else:
            self._early.append(data)

    def eof_received(self) -> bool | None:  # type: ignore[override]  # asyncio's protocols may return True
        return None  # TLS has no connection that is closed in one direction only

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._is_lost:  # after a handshake that fails, asyncio may or may not say so
            self._is_lost = True
            super().connection_lost(exc)

    async def _shake_hands(self, plain: asyncio.Transport) -> None:
        if plain.is_closing():
            return  # `connection_lost` is called soon
        try:
            encrypted = await self.loop.start_tls(
                plain,
                self,
                self._tls.context,
                server_side=True,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=CLOSE_S,
            )
        except Exception as error:
            self.connection_lost(error)
            if not isinstance(error, OSError):  # SSLError is one: the client went away, or does not agree
                raise
            return
        if encrypted is None or encrypted.is_closing():  # asyncio returns None if koff has given up
            self.connection_lost(None)
            return
        self.transport, self.flow, self.scheme = encrypted, FlowControl(encrypted), "https"
        # 0 would pause at once: asyncio pauses when it has so much to write.
        encrypted.set_write_buffer_limits(high=1)
        if not self._tls.accepts(encrypted.get_extra_info("peercert")):
            self._give_up()
            return
        self._is_encrypted = True  # the last: until then, no request is read
        early, self._early = self._early, []
        for data in early:
            self.data_received(data)

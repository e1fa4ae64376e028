"""uvicorn's HTTP/1.1 protocol, with deadlines for clients and a limit on their connections.

uvicorn itself waits for ever for the rest of a request, and for a client that reads no more. Its own limit on
connections would turn away Prometheus as well as the client that has too many. The rules here:

- A request must arrive as a whole within `REQUEST_S`: its head and its body.
- A client must have read a response within `RESPONSE_S` from the moment at which it fell behind. A stream,
  which does not end, gives it a new deadline each time it has read all.
- A client (an IP address) may have `CLIENT_CONNECTIONS` connections, all clients `ALL_CONNECTIONS`. When one
  more is opened, the connection on which koff waits for the client is closed: first one that never sent a
  whole request, and of those the one that has waited longest. If koff waits on none, the new one gets 503.
"""

import asyncio
import socket
import struct
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_S = 10.0
RESPONSE_S = 60.0
CLIENT_CONNECTIONS = 32
ALL_CONNECTIONS = 128
_BUSY = b"too many connections\n"
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nServer: koff\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(_BUSY), _BUSY)
)


class GuardedProtocol(H11Protocol):
    """One connection. All methods are called by the event loop's thread."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deadlines: dict[str, asyncio.TimerHandle] = {}
        self._waits_since_s: float | None = None
        """Since when koff waits for the client: for a request, or until it reads. None: koff's turn."""
        self._requests = 0
        """How many requests arrived as a whole."""
        self._is_given_up = False

    # Calls of the transport.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        # Writing is paused as soon as the client is behind, and resumed when it has read all.
        transport.set_write_buffer_limits(high=0)
        if not self._make_room():
            self._is_given_up = True
            self.refuse()
            return
        self._waits_since_s = self.loop.time()
        self._set_deadline("request", REQUEST_S)

    def data_received(self, data: bytes) -> None:
        self._set_deadline("request", REQUEST_S)
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # it cannot be said to the client: a response has begun
            self._give_up()
        self._note_progress()

    def eof_received(self) -> bool | None:  # type: ignore[override]  # asyncio's protocols may return True
        # A client may close its direction after a whole request, and still read (as `nc` does). In a stream,
        # it is taken for one that has gone.
        if (
            self._is_responding()
            and not self._is_streaming()
            and self.conn.their_state in (h11.DONE, h11.MUST_CLOSE)
        ):
            self.cycle.keep_alive = False
            return True
        return None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._waits_since_s = self.loop.time()
        self._set_deadline("response", RESPONSE_S)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._is_streaming():
            self._clear_deadline("response")
        self._note_progress()

    def connection_lost(self, exc: Exception | None) -> None:
        for name in list(self._deadlines):
            self._clear_deadline(name)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    # Calls of uvicorn.

    def on_response_complete(self) -> None:
        try:
            super().on_response_complete()
        except h11.LocalProtocolError:
            self._give_up()
        self._note_progress()

    def send_400_response(self, msg: str) -> None:
        if self._is_responding():
            self.cycle.disconnected = True  # this is the response now: that of the application is dropped
        super().send_400_response(msg)

    def shutdown(self) -> None:
        try:
            super().shutdown()
        except h11.LocalProtocolError:
            self._give_up()

    # What this class adds.

    def refuse(self) -> None:
        """Closes a connection that is one too many, before its first request."""
        self.transport.write(_REFUSAL)
        self.transport.close()

    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _is_streaming(self) -> bool:
        """Whether the response is one without an end (`koff.serve.events.stream`)."""
        return self._is_responding() and "is_stream" in self.cycle.scope["state"]

    def _note_progress(self) -> None:
        """Sets and clears deadlines by the state of the connection."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY) and "request" in self._deadlines:
            self._clear_deadline("request")
            self._requests += 1
        if self.flow.write_paused:
            return  # the client is to read
        if self._is_responding():
            self._waits_since_s = None
        else:
            self._clear_deadline("response")
            if self._waits_since_s is None:
                self._waits_since_s = self.loop.time()

    def _set_deadline(self, name: str, limit_s: float) -> None:
        """Sets a deadline, unless it is set: a client gets no more time by sending or reading a byte."""
        if name not in self._deadlines and not self._is_given_up:
            self._deadlines[name] = self.loop.call_later(limit_s, self._give_up)

    def _clear_deadline(self, name: str) -> None:
        if name in self._deadlines:
            self._deadlines.pop(name).cancel()

    def _give_up(self) -> None:
        """Closes the connection at once, whatever was to be sent or read."""
        self._is_given_up = True
        if self.flow.write_paused:
            # Without this, the kernel would keep what it has to send for as long as the client is there.
            opened = self.transport.get_extra_info("socket")
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _make_room(self) -> bool:
        """Closes a connection if this one is one too many. Returns False if there is none to close."""
        others = [
            other
            for other in cast("set[GuardedProtocol]", self.connections)
            if other is not self and not other._is_given_up
        ]
        mine = [other for other in others if other._address() == self._address()]
        if len(mine) >= CLIENT_CONNECTIONS:
            return _close_one(mine)
        return len(others) < ALL_CONNECTIONS or _close_one(others)

    def _address(self) -> str | None:
        return self.client[0] if self.client else None


def _close_one(connections: list[GuardedProtocol]) -> bool:
    """Closes the connection on which koff waits with the least hope. Returns False if koff waits on none."""
    waits = [
        (other._requests > 0, other._waits_since_s, other)
        for other in connections
        if other._waits_since_s is not None
    ]
    if not waits:
        return False
    min(waits, key=lambda wait: wait[:2])[2]._give_up()
    return True

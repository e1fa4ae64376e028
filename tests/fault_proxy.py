"""A TCP proxy before a broker that stalls, delays or cuts its connections, while they are open."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

_CHUNK = 1 << 16

TO_BROKER, TO_CLIENT = "to_broker", "to_client"
BOTH = frozenset((TO_BROKER, TO_CLIENT))


class FaultProxy:
    """Listens on a free loopback port, and relays each connection to `target`, the broker's port.

    It begins in the mode "pass". `target` may be set later, but before the first connection. Until then, and
    while the broker refuses connections, a new connection is closed at once. Each fault lasts until the next
    call of another mode. All methods may be called from any thread. The caller calls `close`.
    """

    def __init__(self, target: int = 0) -> None:
        self.target = target
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        # It guards all that follows, and is notified of each change of the mode.
        self._changed = threading.Condition()
        self._stalled: frozenset[str] = frozenset()
        self._delayed: frozenset[str] = frozenset()
        self._delay_s = 0.0
        self._refuses = False
        self._closed = False
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._threads: set[threading.Thread] = set()
        self._start(self._accept)

    @property
    def address(self) -> str:
        """The address for clients, "host:port"."""
        return f"127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        with self._changed:
            return len(self._pairs)

    def stall(self, *directions: str) -> None:
        """Relays no more bytes: of both directions if none is named. Connections stay open.

        New connections are accepted, and nothing is read from them. `resume` delivers all that was sent.
        """
        self._set_mode(stalled=frozenset(directions) or BOTH)

    def delay(self, seconds: float, *directions: str) -> None:
        """Holds each chunk of bytes back for that time: of both directions if none is named."""
        self._set_mode(delay_s=seconds, delayed=frozenset(directions) or BOTH)

    def cut(self) -> None:
        """Closes all connections, and closes each new connection at once."""
        with self._changed:  # nothing that a stall held back may pass before its connection is closed
            self._set_mode(refuses=True)
            self.disconnect()

    def resume(self) -> None:
        """Relays all bytes at once, as at the beginning. Connections that were stalled go on."""
        self._set_mode()

    def disconnect(self) -> None:
        """Closes all connections. New ones are relayed as the present mode says."""
        with self._changed:
            pairs = list(self._pairs)
        for pair in pairs:
            _shut_down(*pair)

    def close(self) -> None:
        """Closes the listener and all connections, and waits for the threads."""
        with self._changed:  # as in `cut`
            self._closed = True
            self._changed.notify_all()
            self.disconnect()
        _shut_down(self._listening)
        self._listening.close()
        while True:
            with self._changed:
                thread = next(iter(self._threads), None)
            if thread is None:
                return
            thread.join()

    def _set_mode(
        self,
        *,
        stalled: frozenset[str] = frozenset(),
        delayed: frozenset[str] = frozenset(),
        delay_s: float = 0.0,
        refuses: bool = False,
    ) -> None:
        assert stalled | delayed <= BOTH
        with self._changed:
            self._stalled, self._refuses = stalled, refuses
            self._delayed, self._delay_s = delayed, delay_s
            self._changed.notify_all()

    def _start(self, work: Callable[[], None]) -> None:
        """Runs `work` in a thread that `close` waits for."""

        def run() -> None:
            try:
                work()
            finally:
                with self._changed:
                    self._threads.discard(thread)

        thread = threading.Thread(target=run, name=f"fault-proxy-{self.port}")
        with self._changed:  # `close` joins only threads that are started
            self._threads.add(thread)
            thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:  # closed
                return
            # A thread for each: to connect to a stalled broker may take long.
            self._start(partial(self._serve, client))

    def _serve(self, client: socket.socket) -> None:
        """Relays one connection in both directions until one of its two sides ends it."""
        with client:
            broker = self._connect()
            if broker is None:
                return
            with broker:
                pair = (client, broker)
                if not self._register(pair):
                    return
                back = threading.Thread(target=self._relay, args=(broker, client, TO_CLIENT))
                back.start()
                self._relay(client, broker, TO_BROKER)
                back.join()
                with self._changed:
                    self._pairs.discard(pair)

    def _connect(self) -> socket.socket | None:
        with self._changed:
            if self._refuses or self._closed or not self.target:
                return None
        try:
            return socket.create_connection(("127.0.0.1", self.target), 10)
        except OSError:
            return None

    def _register(self, pair: tuple[socket.socket, socket.socket]) -> bool:
        """Whether the connection may begin. `cut` and `close` see it from then on."""
        with self._changed:
            if self._refuses or self._closed:
                return False
            for side in pair:
                side.settimeout(None)
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs.add(pair)
            return True

    def _relay(self, source: socket.socket, sink: socket.socket, direction: str) -> None:
        with suppress(OSError):
            while self._may_read(direction) and (chunk := source.recv(_CHUNK)):
                # A chunk that was awaited when a fault began is held back, too.
                self._hold_back(direction)
                sink.sendall(chunk)
        _shut_down(source, sink)  # ends the other direction, too

    def _may_read(self, direction: str) -> bool:
        """Waits while the direction is stalled. False: the proxy was closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or direction not in self._stalled)
            return not self._closed

    def _hold_back(self, direction: str) -> None:
        with self._changed:
            if direction in self._delayed:
                self._changed.wait_for(lambda: self._closed or direction not in self._delayed, self._delay_s)
            self._changed.wait_for(lambda: self._closed or direction not in self._stalled)


def _shut_down(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):  # not connected, or closed
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def fault_proxies(count: int) -> Iterator[list[FaultProxy]]:
    """Proxies without targets, which are closed at the end."""
    proxies = [FaultProxy() for _ in range(count)]
    try:
        yield proxies
    finally:
        for proxy in proxies:
            proxy.close()

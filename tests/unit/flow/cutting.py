"""A wire between a client and a server that is cut when told to: before a request arrives, or before its answer."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_BYTES = 1 << 20
Wired = tuple[str, dict[str, Any], "Wire"]
"""The URL of a server behind a wire, the options of a store of one's own there, and the wire."""


class Wire:
    """Passes on what two sockets say, each connection by two threads."""

    def __init__(self, listener: socket.socket, server: str) -> None:
        self._listener = listener
        self._server = server
        self._when, self._after, self._for_good = "", 0, False
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        self.cuts = 0

    def close(self) -> None:
        """Wait for the last word of each connection; the clients have closed theirs."""
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()

    def cut(self, when: str, *, after: int = 0, for_good: bool = False) -> None:
        """Cut the connection that is used next: `request` (the server never hears of it) or `answer` (it did it).

        `after`: how many are let through first. `for_good`: all later ones are cut, too, as if the client had died.
        """
        with self._lock:
            self._when, self._after, self._for_good = when, after, for_good

    def mend(self) -> None:
        """Cut nothing any more."""
        self.cut("")

    def _is_time_to(self, when: str) -> bool:
        with self._lock:
            if self._when != when:
                return False
            self._after -= 1
            if self._after >= 0:
                return False
            self.cuts += 1
            if not self._for_good:
                self._when = ""
            return True

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # shut down at the end
            while True:
                client, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._connect, args=(client,)))
                self._threads[-1].start()

    def _connect(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._server)
            back = threading.Thread(target=self._pass_on, args=(server, client, "answer"))
            back.start()
            self._pass_on(client, server, "request")
            back.join()

    def _pass_on(self, one: socket.socket, other: socket.socket, what: str) -> None:
        with contextlib.suppress(OSError):
            while said := one.recv(_BYTES):
                if self._is_time_to(what):
                    break
                other.sendall(said)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def wire(path: Path, server: str) -> Iterator[Wire]:
    """A wire from a new socket to that of a server."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        with contextlib.closing(Wire(listener, server)) as made:
            yield made

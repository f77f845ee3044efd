"""What `breakpoint()` does in the model that `make serve DEBUG=MODEL` names: pdb on a port, without any package.

`make serve` mounts this file into the container, under the name of a module that each model's process imports at first;
Triton's module of that name then takes its place. That process answers Triton's health check from a thread without
Python, so it may stop for as long as you like.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import pdb
import socket
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

PORT = 8003
"""In the container; Triton has the three before it."""
_ARGUMENTS = Path("/proc/self/cmdline")
_session = threading.local()
"""Tracing is of one thread, and so is a session."""


def stop() -> None:
    """Stops the caller when a client has come. In other models it does nothing."""
    if f"/models/{os.environ['DEBUG_MODEL']}/" not in _ARGUMENTS.read_text(errors="replace"):
        return
    sys.settrace(None)  # a session that lasts would step into this file
    caller = sys._getframe(1)
    debugger = getattr(_session, "debugger", None)
    if debugger is None or debugger.ended:
        debugger = _session.debugger = _Debugger(*_client(caller))
    debugger.set_trace(caller)


def _client(caller: FrameType) -> tuple[socket.socket, socket.socket]:
    """Returns the listening socket and a client's. The first stays open: other instances wait until it is closed."""
    where = f"{caller.f_code.co_filename}:{caller.f_lineno}"
    waits = False
    while (listener := _listen()) is None:
        if not waits:
            _say(f"{where} waits: another instance or thread is at a breakpoint")
        waits = True
        time.sleep(0.2)
    _say(f"{where} is at a breakpoint: nc 127.0.0.1 {os.environ['DEBUG_PORT']}")
    return listener, listener.accept()[0]


def _listen() -> socket.socket | None:
    """Returns None if the port is in use."""
    try:
        # On all addresses of the container: Docker publishes no port of its loopback.
        return socket.create_server(("", PORT), backlog=0)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        raise


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Debugger(pdb.Pdb):
    """pdb on a connection. `quit`, and the client's end, continue the model instead of failing its requests."""

    def __init__(self, listener: socket.socket, connection: socket.socket) -> None:
        self._sockets = (connection, listener)
        self._stream = connection.makefile("rw", encoding="utf-8", errors="replace")
        self.ended = False
        super().__init__(stdin=self._stream, stdout=self._stream, nosigint=True, readrc=False)

    def interaction(self, *arguments: Any, **more: Any) -> None:
        try:
            super().interaction(*arguments, **more)
        except OSError:
            self.do_quit("")

    def set_continue(self) -> None:
        """With breakpoints of `break`, the session lasts."""
        super().set_continue()
        if not self.breaks:
            self._end()

    def do_quit(self, arg: str) -> bool | None:  # noqa: ARG002
        self.clear_all_breaks()
        self.set_continue()
        return True

    do_q = do_exit = do_EOF = do_quit  # noqa: N815

    def _end(self) -> None:
        self.ended = True
        for end in (self._stream, *self._sockets):
            with contextlib.suppress(OSError):  # the client is gone, and with it what wasn't sent
                end.close()


if __name__ == "triton_python_backend_utils":
    sys.breakpointhook = stop
    sys.path.remove("")
    del sys.modules[__name__]
    importlib.import_module(__name__)

"""A minimal client of Triton's HTTP protocol on one socket, with little overhead and a count of all bytes."""

import json
import socket
from typing import Any

Body = list[bytes | memoryview]


class Connection:
    """A keep-alive connection. `sent` and `received` count all bytes, including headers."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._host = host
        self._buffer = bytearray(1 << 16)
        self.sent = self.received = 0

    def infer(self, model: str, header: bytes, body: Body) -> tuple[bytes, memoryview]:
        """Sends an inference request: `header` (JSON; if empty, the body is the only input) and `body`.

        Returns the response's JSON and the bytes after it, valid until the next call. Raises RuntimeError with the
        server's message if the status isn't 200.
        """
        length = len(header) + sum(len(part) for part in body)
        head = (
            f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Inference-Header-Content-Length: {len(header)}\r\nContent-Length: {length}\r\n\r\n"
        ).encode()
        for part in (head + header, *body):
            self._socket.sendall(part)
        self.sent += len(head) + length
        status, headers, at, end = self._receive()
        content = memoryview(self._buffer)[at:end]
        if status != 200:
            raise RuntimeError(f"{status}: {bytes(content)!r}")
        json_length = int(headers.get("inference-header-content-length", len(content)))
        return bytes(content[:json_length]), content[json_length:]

    def _receive(self) -> tuple[int, dict[str, str], int, int]:
        """Reads one response into the buffer. Returns its status, its headers, and the start and end of its body."""
        filled, end_of_head = 0, -1
        while end_of_head < 0:
            filled += self._more(filled)
            end_of_head = self._buffer.find(b"\r\n\r\n", 0, filled)
        status, *lines = self._buffer[:end_of_head].decode().split("\r\n")
        headers = {key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
        start = end_of_head + 4
        end = start + int(headers["content-length"])
        if end > len(self._buffer):
            # Grow the buffer once; later responses fit.
            self._buffer.extend(bytes(end - len(self._buffer)))
        while filled < end:
            filled += self._more(filled)
        self.received += end
        return int(status.split()[1]), headers, start, end

    def _more(self, filled: int) -> int:
        with memoryview(self._buffer) as view, view[filled:] as rest:
            count = self._socket.recv_into(rest)
        if not count:
            raise ConnectionError("the server closed the connection")
        return count


def tensor_header(name: str, shape: tuple[int, ...], datatype: str, size: int) -> bytes:
    """Returns the JSON for one binary input of `size` bytes. Requests all outputs as binary data."""
    header: dict[str, Any] = {
        "inputs": [{"name": name, "shape": shape, "datatype": datatype, "parameters": {"binary_data_size": size}}],
        "parameters": {"binary_data_output": True},
    }
    return json.dumps(header).encode()

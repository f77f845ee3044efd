"""gRPC calls to a server that may be slow, broken or hostile.

A library for clients reads the frames of HTTP/2 before anything can count them, and needs memory for each. This module
reads one frame after the other, and stops at a number of bytes.

https://www.rfc-editor.org/rfc/rfc9113, https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from urllib.parse import unquote

import hpack
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from .fetch import FetchError, connection

_CONNECT_SECONDS = 5.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = 9
"""Bytes of the head of a frame."""
_FRAME_BYTES = 256
"""As how many bytes a frame counts at least: reading one takes as long as copying more than it has."""
_FRAME_MAX = 1 << 14
"""What every server reads as one frame."""
_WINDOW = 65_535
"""How many bytes each side may send at first before the other one allows more."""
_PUSH, _INITIAL_WINDOW = SettingsFrame.ENABLE_PUSH, SettingsFrame.INITIAL_WINDOW_SIZE
_OK, _CANCELLED, _DEADLINE_EXCEEDED, _UNAVAILABLE = "0", "1", "4", "14"


class StatusError(Exception):
    """The server answers with an error. The message has its words, or the number of its status if it has none."""


class _NotTakenError(Exception):
    """The server has ended the connection, and has done nothing for this call."""


async def call(address: str, method: str, message: bytes, seconds: float, max_bytes: int = 64 << 10) -> bytes:
    """Makes one call on a connection of its own: see Channel."""
    async with aclosing(Channel(address, max_bytes)) as channel:
        return await channel.call(method, message, seconds)


class Channel:
    """Calls one server at `address` (host:port), one call after the other, on one connection while the server keeps it.

    `max_bytes`: maximum number of bytes that the server sends during one call. A frame counts 256 at least.
    """

    def __init__(self, address: str, max_bytes: int) -> None:
        self._address, self._max_bytes = address, max_bytes
        self._port = address.rpartition(":")[2]
        self._opened = AsyncExitStack()
        self._connection: _Connection | None = None

    async def call(self, method: str, message: bytes, seconds: float) -> bytes:
        """Sends one message, and returns the message of the answer.

        - `method`: a path such as /package.Service/Method. `message`: as protobuf.
        - `seconds`: the time for the answer. The server isn't told, because it closes the connection then without a
          word.

        Raises TimeoutError, StatusError or FetchError.
        """
        try:
            status, words, body = await self._exchange(method, message, seconds)
        except asyncio.IncompleteReadError:
            raise FetchError(f"port {self._port} closed the connection before it answered") from None
        except TimeoutError:  # an OSError, too
            raise
        except OSError as error:
            raise FetchError(f"no answer from port {self._port}: {error}") from None
        except (HyperframeError, hpack.HPACKError):
            raise FetchError(f"port {self._port} doesn't speak gRPC") from None
        if status == _DEADLINE_EXCEEDED:
            raise TimeoutError
        if status in (_CANCELLED, _UNAVAILABLE):
            raise FetchError(f"no answer from port {self._port}: {words}")
        if status != _OK:
            raise StatusError(words or f"gRPC status {status}")
        return _content(body)

    async def _exchange(self, method: str, message: bytes, seconds: float) -> tuple[str, str, bytes]:
        while True:
            kept = self._connection is not None
            opened = self._connection or await self._open()
            try:
                async with asyncio.timeout(seconds):
                    answer = await opened.exchange(_headers(self._address, method), message)
            except _NotTakenError:
                await self.aclose()
                if not kept:
                    raise FetchError("the server ends the connection") from None
            except BaseException:
                # Its next frames would be those of this call.
                await self.aclose()
                raise
            else:
                if opened.ending:
                    await self.aclose()
                return answer

    async def _open(self) -> _Connection:
        host, _, port = self._address.rpartition(":")
        opened = connection(host.strip("[]"), int(port), _CONNECT_SECONDS)
        reader, writer = await self._opened.enter_async_context(opened)
        self._connection = _Connection(reader, writer, self._max_bytes)
        return self._connection

    async def aclose(self) -> None:
        self._connection = None
        await self._opened.aclose()


def _headers(address: str, method: str) -> list[tuple[str, str]]:
    return [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", address),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]


def _content(body: bytes) -> bytes:
    """Returns the message of an answer; an empty one if it has none."""
    if body and (body[0] or int.from_bytes(body[1:5], "big") != len(body) - 5):
        raise FetchError("the answer isn't one message without compression")
    return body[5:]


class _Connection:
    """A connection of HTTP/2, and one call at a time on it. `ending`: whether it is of no use after this call."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_bytes: int) -> None:
        self._reader, self._writer, self._max_bytes = reader, writer, max_bytes
        self.ending = False
        self._decoder = hpack.Decoder()
        self._unsent = b""
        self._stream = -1
        self._first = True
        # What the server lets this side send of a new call, of this call, and of all calls.
        self._new_window = self._window = self._all_window = _WINDOW
        # What this side lets the server send of all calls.
        self._their_window = _WINDOW

    async def exchange(self, headers: list[tuple[str, str]], message: bytes) -> tuple[str, str, bytes]:
        """Returns the status, its words and the body of the answer.

        What the server sends beside them is answered as it must be, or ignored.
        """
        self._begin(headers)
        # Not compressed, and its length.
        request = memoryview(b"\0" + len(message).to_bytes(4, "big") + message)
        left, block, body, last, ended = self._max_bytes, b"", bytearray(), False, False
        while not ended:
            request = self._send(request)
            # All at once, since a packet for each frame costs both sides more.
            self._writer.write(self._unsent)
            self._unsent = b""
            frame, length = Frame.parse_frame_header(memoryview(await self._reader.readexactly(_HEAD)))
            if self._first and not isinstance(frame, SettingsFrame):
                raise HyperframeError
            self._first = False
            left -= max(_HEAD + length, _FRAME_BYTES)
            if left < 0:
                # Only words of Triton are so long, which has made its decision then.
                raise (StatusError if block else FetchError)(f"the answer is larger than {_size(self._max_bytes)}")
            frame.parse_body(memoryview(await self._reader.readexactly(length)))
            match frame:
                case DataFrame():
                    self._their_window -= length
                    body += frame.data
                    ended = "END_STREAM" in frame.flags
                case HeadersFrame() | ContinuationFrame():
                    block += frame.data
                    last = last or "END_STREAM" in frame.flags
                    if "END_HEADERS" in frame.flags:
                        answer = dict(self._decoder.decode(block, raw=True))
                        block, ended = b"", last
                        if (status := answer.get(b"grpc-status")) is not None:
                            # The server doesn't wait for the rest.
                            self.ending = self.ending or bool(request)
                            words = unquote(answer.get(b"grpc-message", b"").decode("latin-1"))
                            return status.decode("latin-1"), words, bytes(body)
                        if answer.get(b":status", b"200") != b"200":
                            raise FetchError(f"the answer has the HTTP status {answer[b':status'].decode('latin-1')}")
                case _:
                    self._control(frame)
        raise FetchError("the answer has no gRPC status")

    def _begin(self, headers: list[tuple[str, str]]) -> None:
        """Sends the headers of the next call, and lets the server send an answer of any size that is read."""
        self._stream += 2
        self._window = self._new_window
        if self._first:
            self._unsent = _PREFACE
            self._write(SettingsFrame(0, {_PUSH: 0, _INITIAL_WINDOW: self._max_bytes}))
        if self._their_window < self._max_bytes:
            self._write(WindowUpdateFrame(0, self._max_bytes - self._their_window))
            self._their_window = self._max_bytes
        # A new encoder, which uses nothing that the server remembers.
        self._write(HeadersFrame(self._stream, hpack.Encoder().encode(headers), flags=["END_HEADERS"]))

    def _send(self, request: memoryview) -> memoryview:
        """Sends as much of a request as the server takes now, and returns the rest."""
        while (size := min(len(request), self._window, self._all_window, _FRAME_MAX)) > 0:
            flags = ["END_STREAM"] if size == len(request) else []
            self._write(DataFrame(self._stream, bytes(request[:size]), flags=flags))
            self._window, self._all_window = self._window - size, self._all_window - size
            request = request[size:]
        return request

    def _control(self, frame: Frame) -> None:
        match frame:
            case SettingsFrame() if "ACK" not in frame.flags:
                window = frame.settings.get(_INITIAL_WINDOW, self._new_window)
                self._window, self._new_window = self._window + window - self._new_window, window
                self._write(SettingsFrame(0, flags=["ACK"]))
            case PingFrame() if "ACK" not in frame.flags:
                self._write(PingFrame(0, frame.opaque_data, flags=["ACK"]))
            case WindowUpdateFrame(stream_id=0):
                self._all_window += frame.window_increment
            case WindowUpdateFrame():
                self._window += frame.window_increment
            case GoAwayFrame() if frame.error_code:
                raise FetchError("the server ends the connection")
            case GoAwayFrame() if frame.last_stream_id < self._stream:
                raise _NotTakenError
            # A server that ends connections of some age says that it still answers this call.
            case GoAwayFrame():
                self.ending = True
            case RstStreamFrame():
                raise FetchError(f"the server ends the call with the error {frame.error_code} of HTTP/2")

    def _write(self, frame: Frame) -> None:
        self._unsent += frame.serialize()


def _size(number: int) -> str:
    return f"{number >> 20} MiB" if number >> 20 else f"{number >> 10} KiB"

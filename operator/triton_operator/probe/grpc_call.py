"""One gRPC call to a server that may be slow, broken or hostile.

A library for clients reads the frames of HTTP/2 before anything can count them, and needs memory for each. This module
reads one frame after the other, and stops at a number of bytes.

https://www.rfc-editor.org/rfc/rfc9113, https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
"""

from __future__ import annotations

import asyncio
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
)

from .fetch import FetchError, connection

_CONNECT_SECONDS = 5.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_STREAM = 1
_HEAD = 9
"""Bytes of the head of a frame."""
_FRAME_BYTES = 256
"""As how many bytes a frame counts at least: reading one takes as long as copying more than it has."""
_MESSAGE_MAX = 1 << 14
"""What every server reads as one frame."""
_OK, _CANCELLED, _DEADLINE_EXCEEDED, _UNAVAILABLE = "0", "1", "4", "14"


class StatusError(Exception):
    """The server answers with an error. The message has its words, or the number of its status if it has none."""


async def call(address: str, method: str, message: bytes, seconds: float, max_bytes: int = 64 << 10) -> None:
    """Sends one message to `address` (host:port), and returns when the server has answered that it is done.

    - `method`: a path such as /package.Service/Method. `message`: as protobuf, at most 16,379 bytes.
    - `seconds`: the time for the answer. The server isn't told, because it closes the connection then without a word.
    - `max_bytes`: maximum number of bytes that the server sends meanwhile. A frame counts 256 at least.

    Raises TimeoutError, StatusError or FetchError.
    """
    host, _, port = address.rpartition(":")
    opened = connection(host.strip("[]"), int(port), _CONNECT_SECONDS)
    try:
        async with opened as (reader, writer), asyncio.timeout(seconds):
            writer.write(_request(address, method, message))
            status, words = await _answer(reader, writer, max_bytes)
    except TimeoutError:  # an OSError, too
        raise
    except asyncio.IncompleteReadError:
        raise FetchError(f"port {port} closed the connection before it answered") from None
    except OSError as error:
        raise FetchError(f"no answer from port {port}: {error}") from None
    except (HyperframeError, hpack.HPACKError):
        raise FetchError(f"port {port} doesn't speak gRPC") from None
    if status == _DEADLINE_EXCEEDED:
        raise TimeoutError
    if status in (_CANCELLED, _UNAVAILABLE):
        raise FetchError(f"no answer from port {port}: {words}")
    if status != _OK:
        raise StatusError(words or f"gRPC status {status}")


def _request(address: str, method: str, message: bytes) -> bytes:
    headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", address),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    # Not compressed, and its length.
    body = b"\0" + len(message).to_bytes(4, "big") + message
    if len(body) > _MESSAGE_MAX:
        raise FetchError(f"the request has more than {_MESSAGE_MAX >> 10} KiB")
    frames = (
        SettingsFrame(0, {SettingsFrame.ENABLE_PUSH: 0}),
        HeadersFrame(_STREAM, hpack.Encoder().encode(headers), flags=["END_HEADERS"]),
        DataFrame(_STREAM, body, flags=["END_STREAM"]),
    )
    return _PREFACE + b"".join(frame.serialize() for frame in frames)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, max_bytes: int) -> tuple[str, str]:
    """Returns the status and its words. What the server sends beside them is answered as it must be, or ignored."""
    decoder, block, last, ended = hpack.Decoder(), b"", False, False
    left, first = max_bytes, True
    while not ended:
        head = await reader.readexactly(_HEAD)
        frame, length = Frame.parse_frame_header(memoryview(head))
        if first and not isinstance(frame, SettingsFrame):
            raise HyperframeError
        first = False
        left -= max(_HEAD + length, _FRAME_BYTES)
        if left < 0:
            # Only words of Triton are so long, which has made its decision then.
            raise (StatusError if block else FetchError)(f"the answer is larger than {max_bytes >> 10} KiB")
        frame.parse_body(memoryview(await reader.readexactly(length)))
        match frame:
            case SettingsFrame() if "ACK" not in frame.flags:
                writer.write(SettingsFrame(0, flags=["ACK"]).serialize())
            case PingFrame() if "ACK" not in frame.flags:
                writer.write(PingFrame(0, frame.opaque_data, flags=["ACK"]).serialize())
            # A server that ends connections of some age says that it still answers this one.
            case GoAwayFrame() if frame.error_code or frame.last_stream_id < _STREAM:
                raise FetchError("the server ends the connection")
            case RstStreamFrame():
                raise FetchError(f"the server ends the call with the error {frame.error_code} of HTTP/2")
            case DataFrame():
                ended = "END_STREAM" in frame.flags
            case HeadersFrame() | ContinuationFrame():
                block += frame.data
                last = last or "END_STREAM" in frame.flags
                if "END_HEADERS" in frame.flags:
                    headers = dict(decoder.decode(block, raw=True))
                    block, ended = b"", last
                    if (status := headers.get(b"grpc-status")) is not None:
                        return status.decode("latin-1"), unquote(headers.get(b"grpc-message", b"").decode("latin-1"))
                    if headers.get(b":status", b"200") != b"200":
                        raise FetchError(f"the answer has the HTTP status {headers[b':status'].decode('latin-1')}")
    raise FetchError("the answer has no gRPC status")

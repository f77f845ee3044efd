"""Reads an image's size and orientation from its headers, without decoding it."""

from collections.abc import Iterator
from typing import NamedTuple

KINDS = "JPEG, PNG or WebP"
_JPEG = b"\xff\xd8\xff"
_PNG = b"\x89PNG\r\n\x1a\n"
_EXIF = b"Exif\x00\x00"
_ORIENTATION = 0x0112
# The PNG chunks that define the pixels. OpenCV 4.11 crashes on some other chunks, such as animation.
_PNG_PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
# Real files have a few segments, and a PNG has a chunk for every 8 KB. The limits bound the time in Python.
_MAX_SEGMENTS = 10_000
_MAX_CHUNKS = 100_000


class ImageError(ValueError):
    """The bytes aren't an accepted image. The message for the client gives the reason."""


class Header(NamedTuple):
    """The stored size in pixels, the EXIF orientation (1 to 8), and the number of scans."""

    kind: str
    height: int
    width: int
    orientation: int = 1
    scans: int = 1


def read_header(data: bytes) -> Header:
    """Returns the header of a complete image.

    Raises ImageError if `data` is empty, of another format, without a size, or truncated.
    """
    if not data:
        raise ImageError("the image is empty: 0 bytes")
    if data.startswith(_JPEG):
        header = _jpeg(data)
    elif data.startswith(_PNG):
        header = _png(data)
    elif data.startswith(b"RIFF") and data[8:12] in (b"WEBP", b""):
        header = _webp(data)
    else:
        raise ImageError(f"not a {KINDS} image: it starts with {data[:8]!r}")
    return header


def _sized(header: Header) -> Header:
    if header.height == 0 or header.width == 0:
        raise ImageError(f"the {header.kind} has no size: {header.width}×{header.height} pixels")
    return header


def _truncated(kind: str, what: str, data: bytes) -> ImageError:
    return ImageError(f"the {kind} is truncated: {what} {len(data)} bytes")


def _jpeg(data: bytes) -> Header:
    """Reads the segments up to the start of frame, as libjpeg does, so that both read the same size."""
    at, orientation = 2, 0
    for _ in range(_MAX_SEGMENTS):
        at = data.find(b"\xff", at)
        if at < 0 or at + 9 > len(data):
            raise _truncated("JPEG", "its header ends after", data)
        marker = data[at + 1]
        if marker in (0x00, 0xFF):  # stuffing and fill bytes
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # these carry no length
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            break
        elif marker in (0xD9, 0xDA):
            raise ImageError("the JPEG is damaged: no size before its pixels")
        else:
            length = int.from_bytes(data[at + 2 : at + 4], "big")
            if marker == 0xE1 and not orientation and data.startswith(_EXIF, at + 4):
                orientation = _orientation(data[at + 4 : at + 2 + length])
            at += 2 + length
    else:
        raise ImageError(f"the JPEG is damaged: no size in its first {_MAX_SEGMENTS} segments")
    height, width = (int.from_bytes(data[i : i + 2], "big") for i in (at + 5, at + 7))
    # Inside a scan, 0xff is followed by 0, so every ff da starts a scan.
    header = _sized(Header("JPEG", height, width, orientation or 1, data.count(b"\xff\xda", at)))
    # OpenCV decodes a truncated file without an error and leaves the rest grey.
    if data.rfind(b"\xff\xd9", at) < 0:
        raise _truncated("JPEG", "no end marker in its", data)
    return header


def _png(data: bytes) -> Header:
    if len(data) < 24:
        raise _truncated("PNG", "its header ends after", data)
    if data[12:16] != b"IHDR":
        raise ImageError(f"the PNG is damaged: it starts with the chunk {data[12:16]!r}")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    header, orientation = _sized(Header("PNG", height, width)), 1
    for kind, start, end in _chunks(data, 8, "big", 4):
        if kind == b"eXIf":
            orientation = _orientation(data[start:end])
        elif kind == b"IEND":
            return header._replace(orientation=orientation)
    raise _truncated("PNG", "no end marker in its", data)


def still_png(data: bytes) -> bytes:
    """Returns the PNG with only the chunks that define its pixels: of an animated PNG, its still picture."""
    return _PNG + b"".join(data[a - 8 : b + 4] for name, a, b in _chunks(data, 8, "big", 4) if name in _PNG_PIXELS)


def _webp(data: bytes) -> Header:
    if len(data) < 30:
        raise _truncated("WebP", "its header ends after", data)
    kind, orientation = data[12:16], 1
    if kind == b"VP8X":  # with animation, alpha or metadata: the size is the canvas's
        width, height = (1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
    elif kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = (int.from_bytes(data[at : at + 2], "little") & 0x3FFF for at in (26, 28))
    else:
        raise ImageError(f"the WebP is damaged: it starts with the chunk {kind!r}")
    header = _sized(Header("WebP", height, width))
    whole = 8 + int.from_bytes(data[4:8], "little")
    if whole > len(data):
        raise _truncated("WebP", f"it should have {whole} bytes and has", data)
    if kind == b"VP8X":
        # Ignore bytes after the length in the header.
        for name, start, end in _chunks(data[:whole], 12, "little", 0):
            if name == b"EXIF":
                orientation = _orientation(data[start:end])
    return header._replace(orientation=orientation)


def _chunks(data: bytes, at: int, order: str, trailer: int) -> Iterator[tuple[bytes, int, int]]:
    """Yields the name, start and end of each complete PNG or RIFF chunk, from `at` on."""
    for _ in range(_MAX_CHUNKS):
        if at + 8 > len(data):
            return
        words = data[at : at + 4], data[at + 4 : at + 8]
        length, name = words if order == "big" else words[::-1]
        start = at + 8
        end = start + int.from_bytes(length, order)  # type: ignore[arg-type]
        if end + trailer > len(data):
            return
        yield name, start, end
        # RIFF pads to an even length; PNG appends a checksum.
        at = end + (trailer or end % 2)
    raise ImageError(f"the image is damaged: it has more than {_MAX_CHUNKS} chunks")


def _orientation(exif: bytes) -> int:
    """Returns the orientation in EXIF data, or 1 (upright) if it is missing or invalid."""
    tiff = exif[6:] if exif.startswith(_EXIF) else exif
    order = {b"II*\x00": "little", b"MM\x00*": "big"}.get(tiff[:4])
    if order is None:
        return 1

    def number(at: int, size: int) -> int:
        return int.from_bytes(tiff[at : at + size], order)  # type: ignore[arg-type]

    directory = number(4, 4)
    for entry in range(directory + 2, min(directory + 2 + 12 * number(directory, 2), len(tiff) - 11), 12):
        if number(entry, 2) == _ORIENTATION:
            value = number(entry + 8, 2)
            return value if 1 <= value <= 8 else 1
    return 1

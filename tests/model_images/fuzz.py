"""Decodes damaged files with the preprocessing code. Each must give an image or an ImageError, in bounded memory.

    python tests/model_images/fuzz.py --files 3000

Prints the number of each file before it is decoded, so that after a crash the last number is that of the bad file.
--first N --files 1 --save FILE writes this file. The last line is JSON. It needs only the packages in the server image.
"""

import argparse
import collections
import json
import resource
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

PREPROCESS = Path(__file__).resolve().parents[2] / "model_images" / "detection" / "repository" / "preprocess" / "1"
sys.path.append(str(PREPROCESS))

from images import ImageError, decode  # noqa: E402
from letterbox import SIZE, letterbox  # noqa: E402

LIMIT = 1_000_000
Rng = np.random.Generator


def chunk(kind: bytes, body: bytes) -> bytes:
    """Returns a PNG chunk."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def exif(orientation: int) -> bytes:
    """Returns EXIF data with only the orientation."""
    return b"MM\x00\x2a" + struct.pack(">I", 8) + struct.pack(">HHHIHHI", 1, 0x0112, 3, 1, orientation, 0, 0)


def whole_files() -> list[bytes]:
    """Returns a file of each format and variant that OpenCV can write, and some with additional parts."""
    rng = np.random.default_rng(7)
    image = cv2.resize(rng.integers(0, 256, (6, 8, 3), np.uint8), (64, 48), interpolation=cv2.INTER_CUBIC)
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    alpha = np.dstack([image, grey])
    wide = alpha.astype(np.uint16) * 257

    def encode(kind: str, pixels: np.ndarray, *options: int) -> bytes:
        return cv2.imencode(kind, pixels, options)[1].tobytes()

    jpeg, png = encode(".jpg", image), encode(".png", image)
    turned = jpeg[:2] + b"\xff\xe1" + struct.pack(">H", 8 + len(exif(6))) + b"Exif\x00\x00" + exif(6) + jpeg[2:]
    header_end = 33
    frame = struct.pack(">IIIIIHHBB", 0, 64, 48, 0, 0, 1, 10, 0, 0)
    second = struct.pack(">IIIIIHHBB", 1, 64, 48, 0, 0, 1, 10, 0, 0)
    pixels = b"".join(png[a:b] for a, b in idat(png))
    animation = chunk(b"acTL", struct.pack(">II", 2, 0)) + chunk(b"fcTL", frame)
    later = chunk(b"fcTL", second) + chunk(b"fdAT", struct.pack(">I", 2) + pixels)
    return [
        jpeg,
        turned,
        encode(".jpg", image, cv2.IMWRITE_JPEG_PROGRESSIVE, 1, cv2.IMWRITE_JPEG_RST_INTERVAL, 2),
        encode(".jpg", grey),
        png,
        png[:header_end] + chunk(b"eXIf", exif(8)) + chunk(b"tEXt", b"a\x00b") + png[header_end:],
        png[:header_end] + animation + png[header_end:-12] + later + png[-12:],
        encode(".png", grey),
        encode(".png", wide),
        encode(".webp", image, cv2.IMWRITE_WEBP_QUALITY, 80),
        encode(".webp", alpha, cv2.IMWRITE_WEBP_QUALITY, 101),
        animated_webp(encode(".webp", image, cv2.IMWRITE_WEBP_QUALITY, 80)),
    ]


def idat(png: bytes) -> list[tuple[int, int]]:
    """Returns the start and end of each IDAT chunk's data in a PNG."""
    spans, at = [], 8
    while at < len(png):
        length = int.from_bytes(png[at : at + 4], "big")
        if png[at + 4 : at + 8] == b"IDAT":
            spans.append((at + 8, at + 8 + length))
        at += 12 + length
    return spans


def animated_webp(still: bytes) -> bytes:
    """Returns an animated WebP: two frames of a still WebP of 64×48, and an orientation."""
    size = bytes([63, 0, 0, 47, 0, 0])
    picture = still[12:]

    def part(name: bytes, body: bytes) -> bytes:
        return name + struct.pack("<I", len(body)) + body + b"\x00" * (len(body) % 2)

    frame = part(b"ANMF", bytes(6) + size + b"\x0a\x00\x00\x00" + picture)
    body = b"WEBP" + part(b"VP8X", bytes([0x0A, 0, 0, 0]) + size) + part(b"ANIM", bytes(6)) + frame * 2
    body += part(b"EXIF", exif(3))
    return b"RIFF" + struct.pack("<I", len(body)) + body


def flip(rng: Rng, data: bytearray) -> None:
    """Changes bytes at a few places."""
    for at in rng.integers(0, len(data), int(rng.integers(1, 9))):
        data[at] = int(rng.integers(256))


def extreme(rng: Rng, data: bytearray) -> None:
    """Sets a number, such as a length or a size, to 0 or to its maximum."""
    width = int(rng.choice([1, 2, 4]))
    at = int(rng.integers(0, max(1, min(len(data), 200) - width)))
    data[at : at + width] = bytes([int(rng.choice([0x00, 0x7F, 0xFF]))]) * width


def cut(rng: Rng, data: bytearray) -> None:
    """Removes the end."""
    del data[int(rng.integers(0, len(data))) :]


def drop(rng: Rng, data: bytearray) -> None:
    """Removes a part of the middle."""
    at = int(rng.integers(0, len(data)))
    del data[at : at + int(rng.integers(1, 64))]


def repeat(rng: Rng, data: bytearray) -> None:
    """Inserts a copy of a part."""
    at, to = (int(x) for x in rng.integers(0, len(data), 2))
    data[to:to] = data[at : at + int(rng.integers(1, 256))]


def noise(rng: Rng, data: bytearray) -> None:
    """Replaces a part with random bytes."""
    at = int(rng.integers(0, len(data)))
    data[at : at + 32] = rng.bytes(int(rng.integers(1, 64)))


MUTATIONS: list[Callable[[Rng, bytearray], None]] = [flip, extreme, cut, drop, repeat, noise]


def with_checksums(data: bytes) -> bytes:
    """Corrects the checksums of a PNG, so that the decoder reads the damage. Returns other files unchanged."""
    if not data.startswith(b"\x89PNG"):
        return data
    out, at = bytearray(data), 8
    while at + 12 <= len(out):
        end = at + 8 + int.from_bytes(out[at : at + 4], "big")
        if end + 4 > len(out):
            break
        out[end : end + 4] = struct.pack(">I", zlib.crc32(out[at + 4 : end]))
        at = end + 4
    return bytes(out)


def damaged(files: list[bytes], seed: int, number: int) -> bytes:
    """Returns the damaged file with this number. It is the same each time."""
    rng = np.random.default_rng([seed, number])
    data = bytearray(files[number % len(files)])
    for _ in range(int(rng.integers(1, 4))):
        MUTATIONS[int(rng.integers(len(MUTATIONS)))](rng, data)
        data = data or bytearray(1)
    return with_checksums(bytes(data)) if rng.random() < 0.7 else bytes(data)


def outcome(data: bytes, tensor: np.ndarray) -> str:
    """Returns "decoded" or the kind of ImageError. Raises all other errors."""
    try:
        image = decode(data, LIMIT)
    except ImageError as error:
        return " ".join(w for w in str(error).split(":")[0].split() if w.isalpha())
    assert image.dtype == np.uint8
    assert image.shape[2] == 3
    assert image.shape[0] * image.shape[1] <= LIMIT
    letterbox(image, tensor)
    assert 0 <= tensor.min() <= tensor.max() <= 1
    return "decoded"


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", type=Path, help="write the last file here")
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    files = whole_files()
    tensor = np.empty((3, SIZE, SIZE), np.float32)
    assert {outcome(data, tensor) for data in files} == {"decoded"}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen: collections.Counter[str] = collections.Counter()
    for number in range(arguments.first, arguments.first + arguments.files):
        data = damaged(files, arguments.seed, number)
        if arguments.save:
            arguments.save.write_bytes(data)
        print(number, flush=True)
        seen[outcome(data, tensor)] += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(json.dumps({"opencv": cv2.__version__, "grown_megabytes": round(grown, 1), "outcomes": seen.most_common()}))


if __name__ == "__main__":
    main()

"""A picture in every format that clients send. Pillow writes it, so it shares no code with the tested code."""

import io
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps

Pixels = npt.NDArray[np.uint8]

# The transformation for the stored pixels, by the EXIF orientation that reverses it.
STORED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


class Form(NamedTuple):
    """A file, and the RGB pixels [height, width, 3] that a viewer shows."""

    data: bytes
    pixels: Pixels


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    """Returns the image as a file; `kind` is Pillow's name of the format."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def turned(upright: Pixels, kind: str, orientation: int, **options: Any) -> bytes:
    """Returns a file with turned pixels and the EXIF orientation that turns them back."""
    image = Image.fromarray(upright)
    transpose = STORED[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(image.transpose(transpose) if transpose is not None else image, kind, exif=exif, **options)


def viewed(data: bytes) -> Pixels:
    """Returns the RGB pixels that a viewer shows, from Pillow."""
    return np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))


def forms(upright: Pixels) -> dict[str, Form]:
    """Returns the forms of the picture, by name."""
    image = Image.fromarray(upright)
    grey = image.convert("L")
    other = Image.fromarray(255 - upright)
    exact, close = {"lossless": True}, {"quality": 95}
    turned_forms = {f"JPEG turned {k}": Form(turned(upright, "JPEG", k, **close), upright) for k in STORED}
    turned_forms |= {f"PNG turned {k}": Form(turned(upright, "PNG", k), upright) for k in (6, 7)}
    turned_forms |= {f"WebP turned {k}": Form(turned(upright, "WEBP", k, **exact), upright) for k in (6, 7)}
    alpha = image.convert("RGBA")
    alpha.putalpha(grey)
    greys = np.dstack([np.asarray(grey)] * 3)
    palette = image.quantize(64)
    frames = {"save_all": True, "append_images": [other, other]}
    return {
        **turned_forms,
        "grey JPEG": Form(encode(grey, "JPEG", **close), greys),
        "grey PNG": Form(encode(grey, "PNG"), greys),
        "grey PNG of 16 bits": Form(encode(Image.fromarray(np.asarray(grey).astype(np.uint16) * 257), "PNG"), greys),
        "PNG with alpha": Form(encode(alpha, "PNG"), upright),
        "grey PNG with alpha": Form(encode(alpha.convert("LA"), "PNG"), greys),
        "WebP with alpha": Form(encode(alpha, "WEBP", exact=True, **exact), upright),
        "PNG with a palette": Form(encode(palette, "PNG"), np.asarray(palette.convert("RGB"))),
        "CMYK JPEG": Form(encode(image.convert("CMYK"), "JPEG", **close), upright),
        "progressive JPEG": Form(encode(image, "JPEG", progressive=True, **close), upright),
        "progressive CMYK JPEG": Form(encode(image.convert("CMYK"), "JPEG", progressive=True, **close), upright),
        "JPEG without subsampling": Form(encode(image, "JPEG", subsampling=0, **close), upright),
        "WebP": Form(encode(image, "WEBP", **close), upright),
        "lossless WebP": Form(encode(image, "WEBP", **exact), upright),
        "animated WebP": Form(encode(image, "WEBP", **exact, **frames), upright),
        "animated PNG": Form(encode(image, "PNG", **frames), upright),
        "animated PNG, still apart": Form(encode(image, "PNG", default_image=True, **frames), upright),
    }

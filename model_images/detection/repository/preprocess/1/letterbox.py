"""Fits an image of any size into the network's square input, as yolov5 does."""

import cv2
import numpy as np
import numpy.typing as npt

SIZE = 640
PAD = 114
UNIT = np.float32(1 / 255)


def fit(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Scales [height, width, 3] so that the longer side is SIZE."""
    height, width = image.shape[:2]
    scale = min(SIZE / height, SIZE / width)
    new_height, new_width = (max(1, round(side * scale)) for side in (height, width))
    if (new_height, new_width) == (height, width):
        return image
    return np.asarray(cv2.resize(image, (new_width, new_height), interpolation=cv2.INTER_LINEAR), np.uint8)


def letterbox(image: npt.NDArray[np.uint8], out: npt.NDArray[np.float32] | npt.NDArray[np.uint8]) -> None:
    """Scales BGR [height, width, 3] to fit, centres it, and writes RGB to `out` [3, SIZE, SIZE].

    FP32 values are 0 to 1. UINT8 values are 0 to 255, for a network that divides by 255.
    """
    resized = fit(image)
    height, width = resized.shape[:2]
    top, left = (SIZE - height) // 2, (SIZE - width) // 2
    bottom, right = top + height, left + width

    # Multiplied like the image, so that FP32 and UINT8 tensors agree to the last bit.
    pad = PAD if out.dtype == np.uint8 else np.float32(PAD) * UNIT
    out[:, :top] = pad
    out[:, bottom:] = pad
    out[:, top:bottom, :left] = pad
    out[:, top:bottom, right:] = pad
    # Write each channel directly to the tensor, without a float image or a transposed copy.
    for channel, plane in zip(reversed(out), cv2.split(resized), strict=True):
        inside = channel[top:bottom, left:right]
        if out.dtype == np.uint8:
            inside[:] = plane
        else:
            np.multiply(plane, UNIT, out=inside)

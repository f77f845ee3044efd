"""The model's computation. It doesn't depend on Triton, so you can test it without a server."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def score(features: Floats, weights: Floats) -> Floats:
    """Returns SCORE [n, 1], the weighted sum of FEATURES [n, 4]. Replace it with your own computation.

    Raises ValueError for invalid input; the client gets the message.
    """
    if not np.isfinite(features).all():
        raise ValueError("the features must be finite numbers")
    return (features @ weights)[:, None]

"""What the model computes. It knows nothing of Triton, so it can be tried and tested without a server."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def score(features: Floats, weights: Floats) -> Floats:
    """FEATURES [n, 4] → SCORE [n, 1]: the weighted sum. Put your own in its place.

    Raises ValueError for what can't be answered; the text goes to the client.
    """
    if not np.isfinite(features).all():
        raise ValueError("the features must be finite numbers")
    return (features @ weights)[:, None]

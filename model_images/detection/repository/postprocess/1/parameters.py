"""What a request may ask for: parameters of the request, beside its tensors."""

import json
import math
from typing import Any

from detections import Thresholds

# By the name in a request: the threshold that it replaces.
NAMES = {"confidence": "score", "iou": "iou", "top_k": "most"}


class ParameterError(ValueError):
    """A parameter that makes no sense; the text says which and what would, for the client."""


def asked(parameters: str, defaults: Thresholds) -> Thresholds:
    """The thresholds of a request: `parameters` is a JSON object as Triton gives it, and what isn't in it is default.

    Parameters of other names are left alone: Triton and other models have their own. Raises ParameterError.
    """
    given = json.loads(parameters) if parameters else {}
    found = {field: _number(name, given[name], defaults.most) for name, field in NAMES.items() if name in given}
    return defaults._replace(**found) if found else defaults


def _number(name: str, value: Any, most: int) -> Any:
    """The parameter's value; a text is taken too, for a header that is forwarded, and gRPC's clients without floats."""
    number = _parse(value)
    if name == "top_k":
        if number is None or number != int(number) or not 1 <= number <= most:
            raise ParameterError(f"top_k must be a whole number from 1 to {most}, not {json.dumps(value)}")
        return int(number)
    if number is None or not 0 <= number <= 1:
        raise ParameterError(f"{name} must be a number from 0 to 1, not {json.dumps(value)}")
    return number


def _parse(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None

"""The parameters of a request that replace the thresholds."""

import json
import math
from typing import Any

from detections import Thresholds

# The threshold that each request parameter replaces.
NAMES = {"confidence": "score", "iou": "iou", "top_k": "max_boxes"}


class ParameterError(ValueError):
    """A parameter has an invalid value. The message for the client names the parameter and the valid values."""


def requested(parameters: str, defaults: Thresholds) -> Thresholds:
    """Returns the thresholds of a request, from its parameters (a JSON object from Triton) and the defaults.

    Ignores other parameters, which are for Triton or other models. Raises ParameterError.
    """
    values = json.loads(parameters) if parameters else {}
    thresholds = {
        field: _number(name, values[name], defaults.max_boxes) for name, field in NAMES.items() if name in values
    }
    return defaults._replace(**thresholds) if thresholds else defaults


def _number(name: str, value: Any, max_boxes: int) -> Any:
    """Returns the parameter's value. Accepts strings too: forwarded headers and fractions over gRPC are strings."""
    number = _parse(value)
    if name == "top_k":
        if number is None or number != int(number) or not 1 <= number <= max_boxes:
            raise ParameterError(f"top_k must be a whole number from 1 to {max_boxes}, not {json.dumps(value)}")
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

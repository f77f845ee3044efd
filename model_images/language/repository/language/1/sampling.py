"""How the next character is chosen: the parameters of a request, and the choice."""

import json
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

MOST_TOKENS = 4096
"""The largest max_tokens."""
MOST_STOPS = 16
HOTTEST = 2.0
LARGEST_SEED = 2**63 - 1


class Sampling(NamedTuple):
    """The parameters of a request."""

    max_tokens: int = 64
    temperature: float = 1.0
    """0 always takes the most likely character."""
    top_k: int = 0
    """The number of most likely characters to choose from. 0 and -1 are all."""
    seed: int | None = None
    """The same seed gives the same text."""
    stop: tuple[str, ...] = ()
    """The text ends before the first of these strings."""


class SamplingError(ValueError):
    """A parameter is wrong. The message for the client says which one, and what is right."""


def sampling_of(text: str | None, request_parameters: str = "") -> Sampling:
    """Returns the parameters of the input sampling_parameters (a JSON object). Raises SamplingError.

    Without this input they come from the request's own parameters (a JSON object from Triton), which can also have
    others for Triton.
    """
    if text is None:
        values = json.loads(request_parameters) if request_parameters else {}
        return _read({name: values[name] for name in Sampling._fields if name in values}, "parameters")
    place = "sampling_parameters"
    try:
        values = json.loads(text)
    except ValueError as error:
        raise SamplingError(f'{place} is no JSON ({error}); send an object such as {{"max_tokens": 20}}') from None
    if not isinstance(values, dict):
        raise SamplingError(f'{place} must be a JSON object such as {{"max_tokens": 20}}, not {json.dumps(values)}')
    unknown = sorted(values.keys() - set(Sampling._fields))
    if unknown:
        raise SamplingError(f"{place} has the unknown field {unknown[0]!r}; it can have {', '.join(Sampling._fields)}")
    return _read(values, place)


def _read(values: dict[str, Any], place: str) -> Sampling:
    """Returns checked parameters. `place` is the name of the part of the request."""
    out: dict[str, Any] = {}
    for name, least, most in (("max_tokens", 1, MOST_TOKENS), ("top_k", -1, MOST_TOKENS), ("seed", 0, LARGEST_SEED)):
        if values.get(name) is not None:
            value = values[name]
            if not _is_number(value) or value != int(value) or not least <= value <= most:
                raise SamplingError(
                    f"{place}: {name} must be a whole number from {least} to {most}, not {json.dumps(value)}"
                )
            out[name] = int(value)
    if values.get("temperature") is not None:
        value = _number(values["temperature"])
        if value is None or not 0 <= value <= HOTTEST:
            raise SamplingError(
                f"{place}: temperature must be a number from 0 to {HOTTEST:g}, not {json.dumps(values['temperature'])}"
            )
        out["temperature"] = value
    if values.get("stop") is not None:
        out["stop"] = _stops(values["stop"], place)
    return Sampling(**out)


def _stops(value: Any, place: str) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value
    is_right = isinstance(stops, list) and len(stops) <= MOST_STOPS and all(isinstance(s, str) and s for s in stops)
    if not is_right:
        raise SamplingError(
            f"{place}: stop must be a string that isn't empty, or a list of up to {MOST_STOPS} of them, "
            f"not {json.dumps(value)[:100]}"
        )
    return tuple(stops)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _number(value: Any) -> float | None:
    """Returns a finite number. Accepts a string too: fractions among the parameters of a gRPC request are strings."""
    try:
        return float(value) if not isinstance(value, bool) and math.isfinite(float(value)) else None
    except (TypeError, ValueError):
        return None


def choose(scores: npt.NDArray[np.float32], sampling: Sampling, rng: np.random.Generator) -> int:
    """Returns the token to follow, from the scores [C] of all tokens."""
    if sampling.temperature == 0:
        return int(scores.argmax())
    # The difference to the best comes first: a division by a tiny temperature gives minus infinity at worst.
    shares = np.exp((scores.astype(np.float64) - scores.max()) / sampling.temperature)
    if 0 < sampling.top_k < len(scores):
        shares[np.argsort(-scores, kind="stable")[sampling.top_k :]] = 0
    sums = shares.cumsum()
    return int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))

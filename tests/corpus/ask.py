"""Sends requests with zeros to a model of a server."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any


def first_error(address: str, model: str) -> str:
    """Returns the error of `model`, or its missing outputs; an empty string if its responses are complete.

    Sends a request with batch size 1, and one with batch size 2 if the model supports it.
    """
    config = _get(f"http://{address}/v2/models/{model}/config")
    max_batch = config.get("max_batch_size", 0)
    sizes = [None] if not max_batch else [1] if max_batch == 1 or "sequence_batching" in config else [1, 2]
    return next((error for size in sizes if (error := _error_of(address, model, config, size))), "")


def _error_of(address: str, model: str, config: dict[str, Any], batch: int | None) -> str:
    inputs = [_zeros(t, batch) for t in config.get("input", []) if not t.get("optional")]
    if config.get("model_transaction_policy", {}).get("decoupled"):
        return _stream(address, model, inputs)
    body: dict[str, Any] = {"inputs": inputs}
    if "sequence_batching" in config:
        body["parameters"] = {"sequence_id": 1, "sequence_start": True, "sequence_end": True}
    code, text = _post(f"http://{address}/v2/models/{model}/infer", body)
    if code != 200:
        return text
    got = {output["name"] for output in json.loads(text).get("outputs", [])}
    missing = sorted({t["name"] for t in config.get("output", [])} - got)
    return f"answers without {', '.join(missing)}" if missing else ""


def _zeros(tensor: dict[str, Any], batch: int | None) -> dict[str, Any]:
    shape = ([] if batch is None else [batch]) + [max(int(d), 1) for d in tensor["dims"]]
    count = 1
    for size in shape:
        count *= size
    kind = tensor["data_type"].removeprefix("TYPE_").replace("STRING", "BYTES")
    zero: object = "" if kind == "BYTES" else False if kind == "BOOL" else 0.0 if kind.startswith("FP") else 0
    return {"name": tensor["name"], "shape": shape, "datatype": kind, "data": [zero] * count}


def _stream(address: str, model: str, inputs: list[dict[str, Any]]) -> str:
    code, text = _post(f"http://{address}/v2/models/{model}/generate_stream", {i["name"]: i["data"] for i in inputs})
    return text if code != 200 or '"error"' in text or "data:" not in text else ""


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def _post(url: str, body: object) -> tuple[int, str]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=15) as response:
            return response.status, response.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(errors="replace")
    except (OSError, ValueError) as error:
        return 0, f"no answer: {error}"

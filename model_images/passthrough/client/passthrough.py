#!/usr/bin/env python3
"""Sends a row of numbers with parameters to the model `passthrough` and prints the response as JSON.

    passthrough.py --parameter user=7 --parameter note='"seven"' 1 2 3

Needs tritonclient[http], or tritonclient[grpc] for --grpc.
"""

import argparse
import json
import sys
from typing import Any

import numpy as np

Parameters = dict[str, str | int | bool]


def send(
    rows: list[list[float]], parameters: Parameters, url: str, protocol: str = "http", model: str = "passthrough"
) -> dict[str, Any]:
    """Sends rows of the same width. Returns {"output": rows, "parameters": those that the model got, "instance": name}.

    Raises InferenceServerException.
    """
    if protocol == "grpc":
        import tritonclient.grpc as triton
    else:
        import tritonclient.http as triton
    values = np.array(rows, np.float32)
    tensor = triton.InferInput("INPUT", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    with triton.InferenceServerClient(url) as client:
        answer = client.infer(model, [tensor], parameters=parameters)
    return {
        "output": answer.as_numpy("OUTPUT").tolist(),
        "parameters": json.loads(answer.as_numpy("PARAMETERS")[0, 0]),
        "instance": answer.as_numpy("INSTANCE")[0, 0].decode(),
    }


def parameter(text: str) -> tuple[str, str | int | bool]:
    """Parses `name=value`. A value that isn't valid JSON is a string."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def main() -> int:
    """Runs the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("values", type=float, nargs="+")
    parser.add_argument("--parameter", type=parameter, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--url", help="host:port; by default localhost:8000, with --grpc localhost:8001")
    parser.add_argument("--grpc", action="store_true", help="use gRPC instead of HTTP")
    arguments = parser.parse_args()
    url = arguments.url or ("localhost:8001" if arguments.grpc else "localhost:8000")
    protocol = "grpc" if arguments.grpc else "http"
    print(json.dumps(send([arguments.values], dict(arguments.parameter), url, protocol)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Sends numbers to the model `custom_metrics`, and prints the sum and the model's own metrics as JSON.

    custom_metrics.py 1 2 3

Needs tritonclient[http].
"""

import argparse
import json
import re
import sys
import urllib.request

import numpy as np
import tritonclient.http as triton

MODEL = "custom_metrics"
SERIES = re.compile(rf"^({MODEL}_\w+)\{{(.*?)\}} (\S+)$", re.MULTILINE)


def add(values: list[float], url: str) -> float:
    """Returns the sum that the server computes. Raises InferenceServerException."""
    row = np.array([values], np.float32)
    tensor = triton.InferInput("VALUES", list(row.shape), "FP32")
    tensor.set_data_from_numpy(row)
    with triton.InferenceServerClient(url) as client:
        return float(client.infer(MODEL, [tensor]).as_numpy("SUM")[0, 0])


def scrape(url: str) -> dict[str, float]:
    """Returns the model's series from the metrics at host:port `url`. Buckets have their upper bound in the name."""
    with urllib.request.urlopen(f"http://{url}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    out = {}
    for name, labels, value in SERIES.findall(page):
        bound = re.search(r'le="(.*?)"', labels)
        out[f'{name}{{le="{bound[1]}"}}' if bound else name] = float(value)
    return out


def main() -> int:
    """Runs the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("values", type=float, nargs="+")
    parser.add_argument("--url", default="localhost:8000", help="host:port of HTTP")
    parser.add_argument("--metrics", default="localhost:8002", help="host:port of the metrics")
    arguments = parser.parse_args()
    print(json.dumps({"sum": add(arguments.values, arguments.url), "metrics": scrape(arguments.metrics)}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

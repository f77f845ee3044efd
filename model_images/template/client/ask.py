#!/usr/bin/env python3
"""Sends rows of four numbers to the model `my_model` and prints their scores.

    ask.py 1,2,3,4 5,6,7,8

Needs tritonclient[http].
"""

import argparse
import sys

import numpy as np
import tritonclient.http as triton


def ask(rows: list[list[float]], url: str, model: str = "my_model") -> list[float]:
    """Returns the score of each row. Raises InferenceServerException."""
    features = np.array(rows, np.float32)
    tensor = triton.InferInput("FEATURES", list(features.shape), "FP32")
    tensor.set_data_from_numpy(features)
    with triton.InferenceServerClient(url) as client:
        return [float(score) for score in client.infer(model, [tensor]).as_numpy("SCORE").ravel()]


def main() -> int:
    """Runs the command line and returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="+", type=lambda text: [float(part) for part in text.split(",")])
    parser.add_argument("--url", default="localhost:8000", help="host:port of HTTP")
    arguments = parser.parse_args()
    for score in ask(arguments.rows, arguments.url):
        print(score)
    return 0


if __name__ == "__main__":
    sys.exit(main())

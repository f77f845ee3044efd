#!/usr/bin/env python3
"""Sends images to the detection repository and prints the boxes as JSON.

HTTP and gRPC need tritonclient[http] or tritonclient[grpc]; --raw needs only Python.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


def detect_raw(image: bytes, url: str, model: str) -> dict[str, Any]:
    """Sends the plain bytes, as `curl --data-binary` does. Raises RuntimeError with the server's message."""
    # urllib's default, a form, is for Triton a text with fields.
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": "0"}
    request = urllib.request.Request(f"http://{url}/v2/models/{model}/infer", data=image, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            body, json_length = answer.read(), answer.headers["Inference-Header-Content-Length"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{error.code}: {json.loads(error.read())['error']}") from error
    if json_length is None:
        return json.loads(json.loads(body)["outputs"][0]["data"][0])  # type: ignore[no-any-return]
    # After the JSON header comes the string: its length in four bytes, little-endian, and its bytes.
    return json.loads(body[int(json_length) + 4 :])  # type: ignore[no-any-return]


def detect(
    image: bytes, url: str, model: str, protocol: str = "http", parameters: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Sends the image with tritonclient; `protocol` is "http" or "grpc". Raises InferenceServerException."""
    import numpy as np

    if protocol == "grpc":
        import tritonclient.grpc as triton
    else:
        import tritonclient.http as triton
    with triton.InferenceServerClient(url) as client:
        tensor = triton.InferInput("IMAGE", [1, 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[image]], np.object_))
        answer = client.infer(model, [tensor], parameters=parameters).as_numpy("DETECTIONS")
    return json.loads(answer[0, 0])  # type: ignore[no-any-return]


def main() -> int:
    """Runs the command line. Returns 1 if the server refuses an image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, nargs="+", help="JPEG, PNG or WebP files")
    parser.add_argument("--url", help="host:port; by default localhost:8000, with --grpc localhost:8001")
    parser.add_argument("--model", default="detection")
    parser.add_argument("--confidence", help="minimum score, 0 to 1")
    parser.add_argument("--iou", help="overlap above which two boxes count as one, 0 to 1")
    parser.add_argument("--top-k", help="maximum number of boxes")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--grpc", action="store_true", help="use gRPC instead of HTTP")
    how.add_argument("--raw", action="store_true", help="send the plain bytes as the body of an HTTP POST")
    arguments = parser.parse_args()
    url = arguments.url or ("localhost:8001" if arguments.grpc else "localhost:8000")
    # As strings: gRPC parameters can't be fractions, and the server reports invalid numbers.
    thresholds = {name: getattr(arguments, name) for name in ("confidence", "iou", "top_k")}
    parameters = {name: value for name, value in thresholds.items() if value is not None}
    if parameters and arguments.raw:
        parser.error("--raw can't send parameters; leave out --raw or --confidence, --iou and --top-k")
    refused = 0
    for path in arguments.images:
        try:
            if arguments.raw:
                answer = detect_raw(path.read_bytes(), url, arguments.model)
            else:
                protocol = "grpc" if arguments.grpc else "http"
                answer = detect(path.read_bytes(), url, arguments.model, protocol, parameters)
        except Exception as error:
            print(f"{path}: {error}", file=sys.stderr)
            refused = 1
            continue
        print(json.dumps({"file": str(path), **answer}, ensure_ascii=False))
    return refused


if __name__ == "__main__":
    sys.exit(main())

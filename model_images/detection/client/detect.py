#!/usr/bin/env python3
"""Send an image to the detection repository and print its boxes as JSON.

Over HTTP or gRPC it needs tritonclient[http] or [grpc]; --raw needs Python alone.
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


def detect_raw(image: bytes, url: str, model: str) -> dict[str, Any]:
    """POST the bytes as they are, as `curl --data-binary` does. Raises RuntimeError with the server's words."""
    request = urllib.request.Request(
        f"http://{url}/v2/models/{model}/infer", data=image, headers={"Inference-Header-Content-Length": "0"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            body, json_length = answer.read(), answer.headers["Inference-Header-Content-Length"]
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{error.code}: {json.loads(error.read())['error']}") from error
    if json_length is None:
        return json.loads(json.loads(body)["outputs"][0]["data"][0])  # type: ignore[no-any-return]
    # After the header in JSON comes the string: its length in four bytes, little-endian, and itself.
    return json.loads(body[int(json_length) + 4 :])  # type: ignore[no-any-return]


def detect(
    image: bytes, url: str, model: str, protocol: str = "http", parameters: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Ask with tritonclient; `protocol` is "http" or "grpc". Raises InferenceServerException."""
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
    """Command line; 1 when the server refuses an image."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("images", type=Path, nargs="+", help="JPEG, PNG or WebP files")
    parser.add_argument("--url", help="host:port; by default localhost:8000, with --grpc localhost:8001")
    parser.add_argument("--model", default="detection")
    parser.add_argument("--confidence", help="the least score, 0 to 1")
    parser.add_argument("--iou", help="overlap above which two boxes are one, 0 to 1")
    parser.add_argument("--top-k", help="the most boxes")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--grpc", action="store_true", help="gRPC instead of HTTP")
    how.add_argument("--raw", action="store_true", help="the bare bytes as the body of an HTTP POST")
    arguments = parser.parse_args()
    url = arguments.url or ("localhost:8001" if arguments.grpc else "localhost:8000")
    # As texts: gRPC has no fractions here, and the server says what is wrong with one that is no number.
    asked = {name: getattr(arguments, name) for name in ("confidence", "iou", "top_k")}
    parameters = {name: value for name, value in asked.items() if value is not None}
    if parameters and arguments.raw:
        parser.error("bare bytes carry no parameters")
    refused = 0
    for path in arguments.images:
        try:
            if arguments.raw:
                found = detect_raw(path.read_bytes(), url, arguments.model)
            else:
                protocol = "grpc" if arguments.grpc else "http"
                found = detect(path.read_bytes(), url, arguments.model, protocol, parameters)
        except Exception as error:
            print(f"{path}: {error}", file=sys.stderr)
            refused = 1
            continue
        print(json.dumps({"file": str(path), **found}, ensure_ascii=False))
    return refused


if __name__ == "__main__":
    sys.exit(main())

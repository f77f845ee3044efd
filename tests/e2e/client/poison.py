"""Sends a request that ends the process of the model `echo`, again and again. Runs in a pod.

    poison.py HOST

Ends when /tmp/stop exists, and prints the number of requests as JSON. All of them fail.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from pathlib import Path

STOP = Path("/tmp/stop")
_TIMEOUT_SECONDS = 3
_PAUSE_SECONDS = 0.2


def main() -> None:
    tensor = {"name": "INPUT", "shape": [1], "datatype": "INT32", "data": [-1]}
    body = json.dumps({"inputs": [tensor]}).encode()
    print("started", flush=True)
    requests = 0
    while not STOP.exists():
        requests += 1
        request = urllib.request.Request(f"http://{sys.argv[1]}:8000/v2/models/echo/infer", body, method="POST")
        try:
            urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS).read()
        except OSError:
            time.sleep(_PAUSE_SECONDS)
        else:
            raise SystemExit("the model has answered")
    print(json.dumps({"requests": requests}), flush=True)


if __name__ == "__main__":
    main()

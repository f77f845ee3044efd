"""Sends only requests that are wrong to the model `echo`. Runs in a pod.

    bad_input.py HOST REQUESTS-PER-SECOND

The kinds take turns: no JSON, an unknown input, a wrong type, a wrong shape, and a value for which model.py raises.
Ends when /tmp/stop exists, and prints the number of requests by HTTP status as JSON.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

STOP = Path("/tmp/stop")
_RIGHT = {"name": "INPUT", "shape": [1], "datatype": "INT32", "data": [7]}
_KINDS = [
    b"no JSON",
    *(
        json.dumps({"inputs": [{**_RIGHT, **change}]}).encode()
        for change in (
            {"name": "OTHER"},
            {"datatype": "BYTES", "data": ["seven"]},
            {"shape": [2], "data": [7, 7]},
            {"data": [-2]},
        )
    ),
]


def main() -> None:
    host, interval = sys.argv[1], 1 / float(sys.argv[2])
    statuses: Counter[str] = Counter()
    print("started", flush=True)
    for body in itertools.cycle(_KINDS):
        if STOP.exists():
            break
        request = urllib.request.Request(f"http://{host}:8000/v2/models/echo/infer", body, method="POST")
        try:
            urllib.request.urlopen(request, timeout=10).read()
        except urllib.error.HTTPError as error:
            statuses[str(error.code)] += 1
        except OSError:
            statuses["no answer"] += 1
        else:
            raise SystemExit(f"the model has answered {body!r}")
        time.sleep(interval)
    print(json.dumps(statuses), flush=True)


if __name__ == "__main__":
    main()

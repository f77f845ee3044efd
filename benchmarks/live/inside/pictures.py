"""Sends a picture at a fixed rate and notes which version of the model answers. Runs in a pod.

    pictures.py HOST PICTURE REQUESTS-PER-SECOND

Each request has a new connection; there are no retries. Prints `version V TIME` at the first answer of each version, in
seconds since the epoch. It ends when /tmp/stop exists, and prints one JSON object.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path

STOP = Path("/tmp/stop")
THREADS = 8


class Tally:
    def __init__(self) -> None:
        self.versions: Counter[str] = Counter()
        self.failures: list[str] = []
        self.seconds: list[float] = []
        self._lock = threading.Lock()

    def ask(self, host: str, picture: bytes) -> None:
        start = time.time()
        version, failure = "", ""
        try:
            version = detect(host, picture)
        except Exception as error:  # every error counts as a failure
            failure = f"{time.strftime('%H:%M:%S')} {type(error).__name__}: {error}"
        now = time.time()
        with self._lock:
            self.seconds.append(now - start)
            if failure:
                self.failures.append(failure)
                return
            self.versions[version] += 1
            if self.versions[version] == 1:
                print(f"version {version} {now:.3f}", flush=True)


def detect(host: str, picture: bytes) -> str:
    """Returns the version of the model that answered. Raises an exception if there is no good answer."""
    connection = http.client.HTTPConnection(host, 8000, timeout=30)
    try:
        headers = {"Inference-Header-Content-Length": "0"}
        connection.request("POST", "/v2/models/detection/infer", picture, headers)
        answer = connection.getresponse()
        body = answer.read()
    finally:
        connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status}: {body[:200]!r}")
    length = answer.headers["Inference-Header-Content-Length"]
    return str(json.loads(body[: int(length)] if length else body)["model_version"])


def pace(tally: Tally, host: str, picture: bytes, every: float, after: float) -> None:
    time.sleep(after)
    due = time.monotonic()
    while not STOP.exists():
        tally.ask(host, picture)
        due = max(due + every, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> int:
    host, picture, rate = sys.argv[1], Path(sys.argv[2]).read_bytes(), float(sys.argv[3])
    tally, every = Tally(), THREADS / rate
    for _ in range(60):  # kube-proxy may not have the Service and its endpoints yet
        try:
            detect(host, picture)
        except Exception:
            time.sleep(0.5)
        else:
            break
    threads = [
        threading.Thread(target=pace, args=(tally, host, picture, every, i * every / THREADS)) for i in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = sorted(tally.seconds)
    versions = {version: {"requests": n} for version, n in tally.versions.items()}
    p99 = round(seconds[int(len(seconds) * 0.99)], 3)
    print(json.dumps({"versions": versions, "failures": tally.failures, "p99_s": p99}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

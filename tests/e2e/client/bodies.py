"""Sends large bodies to the model passthrough, of several sizes and types, and prints the answers as JSON."""

import http.client
import json
import sys

SIZES = (1, 4, 6, 16, 64)
"""MiB."""
TYPES = (
    "application/x-www-form-urlencoded",
    "application/octet-stream",
    "application/json",
    "multipart/form-data; boundary=x",
    "",
)


def post(host: str, body: bytes, content_type: str) -> str:
    """Returns "" if the server returns the body, or what happened instead."""
    headers = {"Inference-Header-Content-Length": "0"} | ({"Content-Type": content_type} if content_type else {})
    connection = http.client.HTTPConnection(host, 8000, timeout=120)
    try:
        connection.request("POST", "/v2/models/passthrough/infer", body, headers)
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        return repr(error)
    finally:
        connection.close()
    return "" if answer.status == 200 and body in content else f"{answer.status}: {content[:300]!r}"


if __name__ == "__main__":
    failures = {}
    for size in SIZES:
        for content_type in TYPES:
            failure = post(sys.argv[1], bytes(range(1, 65)) * (size << 14), content_type)
            if failure:
                failures[f"{size} MiB, {content_type or 'no type'}"] = failure
    print(json.dumps({"sent": len(SIZES) * len(TYPES), "failures": failures}))

"""Sends the same request on several connections, one after the other on each, and prints what it measured as JSON.

    python load.py HOST:PORT MODEL CONNECTIONS SECONDS

It does as little as possible for each request, so that the server is what is measured.
"""

import json
import selectors
import socket
import sys
import time

BODY = json.dumps({"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 16], "data": [1.0] * 16}]}).encode()


def main() -> None:
    address, model, connections, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    host, port = address.split(":")
    head = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(BODY)}\r\n\r\n"
    request = head.encode() + BODY
    selector = selectors.DefaultSelector()
    sent, left = {}, {}
    for _ in range(connections):
        connection = socket.create_connection((host, int(port)))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        selector.register(connection, selectors.EVENT_READ)
        left[connection] = b""
        sent[connection] = time.perf_counter()
        connection.sendall(request)
    latencies, start = [], time.perf_counter()
    end = start + seconds
    now = start
    while now < end:
        for key, _ in selector.select(1.0):
            connection = key.fileobj
            data = left[connection] + connection.recv(65536)
            split = data.find(b"\r\n\r\n")
            if split >= 0:
                assert data.startswith(b"HTTP/1.1 200"), data[:300]
                length = int(data[:split].lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                if len(data) >= split + 4 + length:
                    now = time.perf_counter()
                    latencies.append(now - sent[connection])
                    sent[connection] = now
                    connection.sendall(request)
                    data = b""
            left[connection] = data
        now = time.perf_counter()
    latencies.sort()
    took = now - start
    quantile = {f"p{q}": latencies[len(latencies) * q // 100] for q in (50, 99)}
    print(json.dumps({"throughput": len(latencies) / took, **quantile, "latencies": latencies}))


if __name__ == "__main__":
    main()

"""A TCP proxy that limits the bits per second in each direction, over all connections."""

import argparse
import socket
import threading
import time

CHUNK = 16 * 1024
# Bytes that may pass at once after a pause: 5 ms at 100 Mbit/s.
BURST = 64 * 1024


class Bucket:
    """A token bucket. A token is a byte; `rate` tokens are added per second."""

    def __init__(self, rate: float) -> None:
        self._rate, self._lock = rate, threading.Lock()
        self._free_at = time.monotonic()

    def take(self, count: int) -> None:
        """Waits until `count` bytes may pass."""
        with self._lock:
            now = time.monotonic()
            self._free_at = max(self._free_at, now - BURST / self._rate) + count / self._rate
            wait = self._free_at - now
        if wait > 0:
            time.sleep(wait)


def carry(source: socket.socket, target: socket.socket, bucket: Bucket) -> None:
    """Copies bytes until one side closes the connection."""
    buffer = memoryview(bytearray(CHUNK))
    try:
        while count := source.recv_into(buffer):
            bucket.take(count)
            target.sendall(buffer[:count])
    except OSError:
        pass
    finally:
        for end in (source, target):
            end.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="link", description=__doc__)
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--to", required=True, help="host:port")
    parser.add_argument("--mbit", type=float, required=True, help="megabits per second in each direction")
    arguments = parser.parse_args()
    host, port = arguments.to.split(":")
    up, down = (Bucket(arguments.mbit * 1e6 / 8) for _ in range(2))
    listener = socket.create_server(("127.0.0.1", arguments.listen))
    while True:
        client, _ = listener.accept()
        server = socket.create_connection((host, int(port)))
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Small buffers, so that the bucket limits the rate and not the kernel.
            end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * CHUNK)
        for source, target, bucket in ((client, server, up), (server, client, down)):
            threading.Thread(target=carry, args=(source, target, bucket), daemon=True).start()


if __name__ == "__main__":
    main()

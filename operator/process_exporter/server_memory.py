"""The memory of a server's container, and when it will reach the limit. Pure."""

from __future__ import annotations

from .growth import Growth
from .look import Look, Memory

Models = frozenset[bytes]
"""The models that a server has loaded, each as Triton's metrics name it."""


class ServerMemory:
    """Follows the memory of the server in a pod, and of the one that follows it after a restart.

    - `now`: at the last look; None before, and if it isn't visible.
    - `full_time`: when it will reach the limit, by the clock of `add`; None if it doesn't grow steadily.
    """

    def __init__(self) -> None:
        self.now: Memory | None = None
        self.full_time: float | None = None
        self._server: tuple[int, int] | None = None
        self._models: Models | None = None
        self._growth = Growth()

    def add(self, at: float, look: Look, models: Models | None) -> None:
        """Adds a look of the time `at` (seconds). `models`: those that are loaded; None if the server doesn't answer.

        Observes a server from when it has loaded its models, and again from when it has loaded or unloaded one.
        """
        process = look.processes.get(look.server)
        server = (look.server, process.start if process else 0)
        if server != self._server:
            self._server, self._models = server, None
        if models is not None and models != self._models:
            self._models, self._growth = models, Growth()
        self.now = look.memory
        if self.now is None or self.now.limit is None or self._models is None:
            self.full_time = None
        else:
            self.full_time = self._growth.add(at, self.now.used, self.now.limit)

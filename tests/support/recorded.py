"""Records the numbers of servers that a Deployment has had."""

from __future__ import annotations

import itertools
import threading

from .api import Api, eventually


class Replicas:
    """Every value of a Deployment's `spec.replicas`, from a watch that begins now."""

    def __init__(self, api: Api, name: str) -> None:
        self._api, self._name = api, name
        self._states: list[tuple[str, int]] = []
        threading.Thread(target=self._watch, daemon=True).start()
        eventually(lambda: self._states, 60, "the watch")

    @property
    def seen(self) -> list[int]:
        """Returns the values in their order, up to that in the API server now."""
        version = self._api.get("Deployment", self._name)["metadata"]["resourceVersion"]
        # A watch may skip no state, so the version comes, unless the watch has ended.
        eventually(lambda: any(v == version for v, _ in self._states), 60, f"the watch to see the version {version}")
        return [number for number, _ in itertools.groupby(number for _, number in self._states)]

    def _watch(self) -> None:
        for _, _, deployment in self._api.watch("Deployment", seconds=1800):
            if deployment["metadata"]["name"] == self._name:
                self._states.append((deployment["metadata"]["resourceVersion"], int(deployment["spec"]["replicas"])))

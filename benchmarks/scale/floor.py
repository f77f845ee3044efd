"""The floor: a plain script that creates the same children as the operator, from a prepared list.

It reads TritonModels from stdin as they are created, one JSON object per line, and creates their children. Then it
prints the time at which all children existed.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue

from support.api import Api, Object
from support.operator_process import TOOLS_IMAGE
from triton_operator.api.types import TritonModel
from triton_operator.render import Facts, render

from .world import CHILDREN, key, models


def rendered(model: Object) -> list[Object]:
    """Returns the children of `model` before any server has started."""
    objects = render(TritonModel.model_validate(model), Facts(TOOLS_IMAGE, "Copy"))
    return [o for o in objects if o["kind"] in CHILDREN]


def main(kubeconfig: str, size: str, writers: str) -> int:
    api = Api.of(Path(kubeconfig))
    prepared = {key(m): rendered(m) for m in models(int(size))}
    todo: SimpleQueue[Object | None] = SimpleQueue()

    def write() -> None:
        while (model := todo.get()) is not None:
            for obj in prepared[key(model)]:
                obj["metadata"]["ownerReferences"][0]["uid"] = model["uid"]
                api.create(obj)

    threads = [threading.Thread(target=write) for _ in range(int(writers))]
    for thread in threads:
        thread.start()
    print("ready", flush=True)
    started = 0.0
    for line in sys.stdin:
        started = started or time.monotonic()
        todo.put(json.loads(line))
    for _ in threads:
        todo.put(None)
    for thread in threads:
        thread.join()
    print(json.dumps({"ended": time.monotonic(), "objects": sum(map(len, prepared.values()))}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

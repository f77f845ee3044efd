"""Runs the operator with a second group of servers for each TritonModel that has an annotation with their image.

A test starts this as a program of its own. It is all that such a feature needs: nothing of the operator is changed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator

from triton_operator.api.status import TritonModelStatus
from triton_operator.api.types import TritonModel
from triton_operator.pods.group import Group
from triton_operator.runtime import logs
from triton_operator.runtime.app import App
from triton_operator.runtime.settings import Settings

ANNOTATION = "example.com/second-image"
NAME = "second"
SERVERS = 2


def second_group(model: TritonModel, _: TritonModelStatus, __: int) -> Iterator[Group]:
    """Returns two servers with the model image in the annotation."""
    if image := model.metadata.annotations.get(ANNOTATION):
        source = model.spec.model_image.model_copy(update={"reference": image})
        spec = model.spec.model_copy(update={"model_image": source, "replicas": SERVERS, "autoscaling": None})
        yield Group(name=NAME, model=model.model_copy(update={"spec": spec}))


async def _run() -> None:
    settings = Settings.from_environment()
    logs.configure(settings.log_format, settings.log_level)
    code = await App(settings, group_policies=(second_group,)).run()
    logging.shutdown()
    os._exit(code)


if __name__ == "__main__":
    asyncio.run(_run())

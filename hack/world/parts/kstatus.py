"""kstatus, with which Flux and Helm judge a TritonModel, for the tests of its conditions."""

from __future__ import annotations

from hack.world import settings
from hack.world.job import Job

from . import go

_VERSION = "v1.2.1"
_FILE = settings.BIN / "kstatus"


def _build(job: Job) -> None:
    go.build(job, "kstatus", {"kstatus": "tritonoperator.io/world/kstatus"}, settings.BIN)


PARTS = [
    go.programs(
        "kstatus", "judges a TritonModel as Flux and Helm do", _VERSION, make=_build,
        made_from="Go module `github.com/fluxcd/cli-utils`", seconds=40, module="kstatus", files=(_FILE,), megabytes=20,
        registry=None,
    )
]  # fmt: skip

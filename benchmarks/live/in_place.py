"""From a commit to the new model's answer with rollout.strategy InPlace: like `commit`, without new servers."""

from __future__ import annotations

from statistics import median

from support.cluster import Cluster

from .commit import commits

SPEC = {
    "rollout": {"strategy": "InPlace"},
    "entrypoint": "detection",
    "server": {"modelControl": "explicit", "loadModels": ["detection"]},
}


def measure(cluster: Cluster) -> tuple[dict[str, object], dict[str, object]]:
    """Returns the figures and the conditions. At most 5 runs, because a pod is changed 5 times at most."""
    runs, result, conditions = commits(cluster, SPEC)
    return {
        "in_place_s": round(median(run["answer"] for run in runs), 1),
        "in_place_to_all_servers_s": round(median(run["complete"] for run in runs), 1),
        "in_place_failed_requests": len(result["failures"]),
        "in_place_rollouts": sum(change != "InPlace" for change in result["changes"]),
    }, conditions

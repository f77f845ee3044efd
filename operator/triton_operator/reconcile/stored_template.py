"""Records how the API server has stored a pod template in another form, such as with the images of a mirror.

Otherwise a later version of the operator can't tell that the Deployment has the template that it applied, and replaces
all servers. See docs/decisions/0017-upgrades-restart-no-server.md. Pure, except that it keeps its results in the cache.
"""

from __future__ import annotations

from triton_operator.api import names
from triton_operator.plan import applied_record, identity, is_as_applied, stored_template

from .cache import ReconcileCache
from .snapshot import Object


def recorded(desired: Object, live: Object | None, cache: ReconcileCache) -> Object:
    """Returns the Deployment `desired` with LABEL_STORED, if `live` is the answer to its last apply and differs.

    Until that is known, the label stays as it is. It is set once for each template, because admission may make
    something else of each apply.
    """
    template = desired["metadata"]["annotations"][names.ANNOTATION_TEMPLATE]
    if live is None or live["metadata"].get("annotations", {}).get(names.ANNOTATION_TEMPLATE) != template:
        return desired
    kept = _labelled(desired, live["metadata"].get("labels", {}).get(names.LABEL_STORED, ""))
    applied = cache.applied.get(identity(desired))
    if cache.recorded == template or applied is None or applied != applied_record(kept, live):
        return kept
    cache.recorded = template
    content = desired["spec"]["template"]
    return _labelled(desired, "" if is_as_applied(content, live) else stored_template(content, live))


def _labelled(desired: Object, label: str) -> Object:
    if not label:
        return desired
    metadata = desired["metadata"]
    return {**desired, "metadata": {**metadata, "labels": {**metadata["labels"], names.LABEL_STORED: label}}}

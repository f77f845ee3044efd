"""The policy that limits which ephemeral containers the operator may add to a pod (docs/decisions/0030-in-place.md)."""

from __future__ import annotations

from triton_operator.api import kinds, names
from triton_operator.render import delivery, in_place

from . import admission
from .admission import Object, cel_list, cel_text

IN_PLACE = f"in-place.{names.GROUP}"


def containers() -> Object:
    """Allows the operator only the two containers of a change in place, in pods of the TritonModel.

    It is evaluated once for each TritonModel of the namespace, and the one that the pod's label names decides about the
    image. If the label names none, no rule limits the image of the container that copies the files; but the policy
    `servers` keeps the label away from other pods. It doesn't apply to other clients: RBAC decides whether they may add
    ephemeral containers.
    """
    label = cel_text(names.LABEL_MODEL)
    copy = [delivery.BUSYBOX, "sh", "-c", in_place.COPY, delivery.BUSYBOX]
    mounts = cel_list([delivery.TOOLS["name"], delivery.REPOSITORIES["name"], delivery.SHM["name"]])
    return admission.policy(
        IN_PLACE,
        params=(names.API_VERSION, names.KIND),
        rules=[admission.rule(kinds.POD.group, [f"{kinds.POD.plural}/ephemeralcontainers"], "UPDATE")],
        conditions={
            "the-operator": f"request.userInfo.username.startsWith('system:serviceaccount:') && "
            f"request.userInfo.username.endsWith({cel_text(':' + names.FIELD_MANAGER)})",
        },
        variables={
            "model": f"object.metadata.?labels.orValue({{}})[?{label}].orValue('')",
            "known": "oldObject.spec.?ephemeralContainers.orValue([]).map(c, c.name)",
            "added": "object.spec.?ephemeralContainers.orValue([]).filter(c, !(c.name in variables.known))",
            "tools": "object.spec.?initContainers.orValue([])"
            f".filter(c, c.name == {cel_text(names.CONTAINER_TOOLS)}).map(c, c.image)",
            "files": f"variables.added.filter(c, c.name.startsWith({cel_text(in_place.FILES)}))",
            "changes": f"variables.added.filter(c, c.name.startsWith({cel_text(in_place.CHANGE)}))",
        },
        validations=[
            _refusal(
                "variables.model != '' && size(variables.files) + size(variables.changes) == size(variables.added)",
                "only containers of a change in place, and only in servers of a TritonModel",
            ),
            _refusal(
                f"variables.files.all(c, size(c.?command.orValue([])) == {len(copy) + 4} && "
                + " && ".join(f"c.command[{k}] == {cel_text(word)}" for k, word in enumerate(copy))
                + ")",
                "the command of the container that copies the files is fixed",
            ),
            _refusal(
                f"variables.changes.all(c, size(c.?command.orValue([])) >= {len(in_place.PROGRAM)} && "
                + " && ".join(f"c.command[{k}] == {cel_text(word)}" for k, word in enumerate(in_place.PROGRAM))
                + " && c.image in variables.tools)",
                "the container that loads the model has a fixed command and the image of the pod's container tools",
            ),
            _refusal(
                # A webhook may give images another registry before this is evaluated. The digest still says which one.
                "variables.model != params.metadata.name || "
                "variables.files.all(c, c.image == params.spec.modelImage.reference || "
                "(params.spec.modelImage.reference.contains('@sha256:') && "
                "c.image.endsWith('@sha256:' + params.spec.modelImage.reference.split('@sha256:')[1])))",
                "the container that copies the files has the model image of the TritonModel, or the same digest in "
                "another registry",
            ),
            _refusal(
                "variables.added.all(c, !has(c.env) && !has(c.envFrom) && !has(c.args) && !has(c.lifecycle) && "
                "!has(c.workingDir) && !has(c.stdin) && !has(c.tty) && !has(c.volumeDevices) && "
                f"c.?volumeMounts.orValue([]).all(m, m.name in {mounts}) && "
                "!c.?securityContext.?privileged.orValue(false) && "
                "!c.?securityContext.?allowPrivilegeEscalation.orValue(true) && "
                "size(c.?securityContext.?capabilities.?add.orValue([])) == 0)",
                "the containers have no variables, no other volumes and no privileges",
            ),
        ],
    )


def _refusal(expression: str, rule: str) -> Object:
    text = f"the operator may not add these ephemeral containers: {rule}"
    return {"expression": expression, "message": text, "reason": "Forbidden"}

"""Policies against privilege escalation through a TritonModel.

A user who may not create pods, NetworkPolicies or PodDisruptionBudgets can't create them with a TritonModel either,
except for the parts that are safe for every user. For pods there is an allow list, so that fields of newer versions of
Kubernetes are refused by default. It covers the fields that the operator copies into the pod unchanged:
`spec.podTemplate` and `spec.server.env`.
"""

from __future__ import annotations

from triton_operator.api import kinds, names

from . import admission
from .admission import Object, cel_list, cel_text

POD_TEMPLATE = f"pod-template.{names.GROUP}"
NETWORK = f"network-policy.{names.GROUP}"
DISRUPTION = f"disruption.{names.GROUP}"

FIELDS = ("affinity", "containers", "nodeSelector", "tolerations", "topologySpreadConstraints", "volumes")
"""Allowed fields of spec.podTemplate.spec."""
AFFINITY = ("nodeAffinity",)
"""Pod affinity is refused: it can select pods of other namespaces and keep them off a node."""
CONTAINER = ("name", "args", "command", "env", "volumeMounts", "workingDir")
"""Allowed fields of the server's container. Other containers are refused."""
VALUE_FROM = ("fieldRef", "resourceFieldRef")
"""Allowed sources of environment variables: fields of the pod itself, but no Secret, ConfigMap or file."""
ANNOTATIONS = ("kubectl.kubernetes.io/restartedAt",)
"""Allowed annotations with a prefix. Other prefixes can configure other programs; annotations without a prefix can't,
and are allowed."""
TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Every pod has these. Otherwise only tolerations for the server's extended resources are allowed."""
MAX_ITEMS = 64
"""Maximum number of items of a list, to limit the cost of the CEL expressions."""
OWN_VOLUMES = ("models", "shm", "tmp", "tools")
"""Volumes that the operator adds to each pod."""


def pod_template() -> Object:
    """Refuses parts that a request adds and that the user may not use.

    Parts that the TritonModel already has don't block changes by other users.
    """
    return admission.policy(
        POD_TEMPLATE,
        rules=[admission.rule(names.GROUP, [names.PLURAL], "CREATE", "UPDATE")],
        # Not for changes of the status, the scale, thresholds or labels only.
        conditions={"the-spec-changes": "oldObject == null || object.spec != oldObject.spec"},
        variables={
            "after": _template("object"),
            "before": f"oldObject == null ? {{}} : {_template('oldObject')}",
            **{f"{field}After": _well_formed("variables.after", field, key) for field, key in _LISTS.items()},
            "containersBefore": _once(_well_formed("variables.before", "containers", "name"), "name"),
            "volumesBefore": _once(_well_formed("variables.before", "volumes", "name"), "name"),
            "tolerationsBefore": _well_formed("variables.before", "tolerations", "key"),
            "containersNow": f"{_same_list('containers')} ? [] : variables.containersAfter",
            "volumesNow": f"{_same_list('volumes')} ? [] : variables.volumesAfter",
            "envAfter": _env("object"),
            "envBefore": f"oldObject == null ? [] : {_env('oldObject')}",
            "heldAfter": _held("object"),
            "heldBefore": f"oldObject == null ? [] : {_held('oldObject')}",
            "labels": _changed("labels"),
            "annotations": _changed("annotations"),
            "faults": " +\n".join(
                [
                    *(_shape(field) for field in _LISTS),
                    _fields(),
                    _affinity(),
                    _containers(),
                    _container_fields(),
                    _server_env(),
                    _container_env(),
                    _volumes(),
                    _mounts(),
                    _tolerations(),
                    "variables.labels.map(k, 'spec.podTemplate.metadata.labels ' + k + "
                    "' (Services and NetworkPolicies select pods by labels)')",
                    f"variables.annotations.filter(k, k.contains('/') && !(k in {cel_list(ANNOTATIONS)}))"
                    ".map(k, 'spec.podTemplate.metadata.annotations ' + k + "
                    "' (annotations with a prefix can configure other programs)')",
                ]
            ),
        },
        validations=[
            {
                "expression": f"{_may_create('', 'pods')} ||\nsize(variables.faults) == 0",
                "message": "parts of spec.podTemplate or spec.server.env need the verb create on pods: remove them",
                "messageExpression": "request.userInfo.username + ' may not create pods in ' + request.namespace + "
                "', so may not use ' + variables.faults.join(', ') + ': remove it, or get a role with the verb "
                "create on pods'",
                "reason": "Forbidden",
            },
        ],
    )


def network_policy() -> Object:
    """Allows changes of spec.networkPolicy only to users who may create NetworkPolicies.

    NetworkPolicies are additive: a new one can allow connections that others don't. Removing one, or deleting its
    TritonModel, can allow connections too.
    """

    def network(obj: str) -> str:
        return f"({obj} == null ? null : dyn({obj}).spec.?networkPolicy.orValue(null))"

    return _needs_create(
        NETWORK,
        kinds.NETWORK_POLICY,
        operations=("CREATE", "UPDATE", "DELETE"),
        unless=f"{network('object')} == {network('oldObject')}",
        what="request.operation == 'DELETE' ? 'delete a TritonModel that has spec.networkPolicy' : "
        "'change spec.networkPolicy'",
        remedy="leave it unchanged",
    )


def disruption() -> Object:
    """Allows spec.disruption.maxUnavailable of 0 only to users who may create PodDisruptionBudgets.

    0 blocks the drain of every node that runs a server. Kubernetes rounds percentages up, so only 0 and 0% do this.
    """

    def blocks(obj: str) -> str:
        return f"string(dyn({obj}).spec.?disruption.?maxUnavailable.orValue(1)).matches('^0+%?$')"

    return _needs_create(
        DISRUPTION,
        kinds.DISRUPTION_BUDGET,
        operations=("CREATE", "UPDATE"),
        unless=f"!{blocks('object')} || (oldObject != null && {blocks('oldObject')})",
        what="'set spec.disruption.maxUnavailable to 0, which blocks the drain of nodes'",
        remedy="set 1 or more",
    )


def _needs_create(
    name: str, kind: kinds.Kind, *, operations: tuple[str, ...], unless: str, what: str, remedy: str
) -> Object:
    """Returns a policy that refuses a request unless `unless` holds or the user may create objects of `kind`.

    - `unless`: a CEL expression.
    - `what`: CEL for the refused action, after "may not" in the message.
    - `remedy`: what the user can do instead.
    """
    return admission.policy(
        name,
        rules=[admission.rule(names.GROUP, [names.PLURAL], *operations)],
        conditions={"not-a-controller-of-kubernetes": f"!({admission.CONTROLLERS})"},
        validations=[
            {
                "expression": f"{unless} ||\n{_may_create(kind.group, kind.plural)}",
                "message": f"this change needs the verb create on {kind.plural}",
                "messageExpression": f"request.userInfo.username + ' may not create {kind.plural} in ' + "
                f"request.namespace + ', so may not ' + ({what}) + ': {remedy}, or get a role with "
                f"the verb create on {kind.plural}'",
                "reason": "Forbidden",
            },
        ],
    )


def _may_create(group: str, plural: str) -> str:
    where = f"group({cel_text(group)}).resource({cel_text(plural)}).namespace(request.namespace)"
    return f"authorizer.{where}.check('create').allowed()"


_LISTS = {"containers": "name", "volumes": "name", "tolerations": "key"}
"""Lists of the template that the policy checks, and the key of their items."""


def _template(obj: str) -> str:
    return f"dyn({obj}).spec.?podTemplate.?spec.orValue({{}})"


def _env(obj: str) -> str:
    return f"dyn({obj}).spec.?server.?env.orValue([]).filter(e, type(e) == map && type(e.?name.orValue(0)) == string)"


def _held(obj: str) -> str:
    """CEL: the extended resources (Kubernetes' IsExtendedResourceName) with a limit above 0.

    Other resources don't count: a pod can have a limit of one and a request of zero, which every node satisfies.
    """
    extended = "k.contains('/') && !k.contains('kubernetes.io/') && !k.startsWith('requests.')"
    return (
        f"[dyn({obj}).spec.?server.?resources.?limits.orValue({{}})].map(l, "
        f"l.filter(k, {extended} && isQuantity(string(l[k])) &&\n"
        "  quantity(string(l[k])).isGreaterThan(quantity('0'))))[0]"
    )


def _list(of: str, field: str) -> str:
    """CEL: the list, or [] if it is missing, too long or not a list."""
    here = f"{of}.?{field}.orValue([])"
    return f"(type({here}) == list && size({here}) <= {MAX_ITEMS} ? {here} : [])"


def _well_formed(of: str, field: str, key: str) -> str:
    """CEL: the items of the list that are objects with the key. Stored objects may have other types."""
    return f"{_list(of, field)}.filter(i, type(i) == map && type(i.?{key}.orValue(0)) == string)"


def _once(items: str, key: str) -> str:
    """CEL: the items with a unique key. Of several items with one key, only the last has an effect."""
    return (
        f"[{items}].map(l, l.filter(i, type(i) == map && "
        f"size(l.filter(j, type(j) == map && j.?{key} == i.?{key})) == 1))[0]"
    )


def _same_list(field: str) -> str:
    return (
        f"{cel_text(field)} in variables.after && {cel_text(field)} in variables.before && "
        f"variables.after.{field} == variables.before.{field}"
    )


def _shape(field: str) -> str:
    """CEL: a list with a fault if the field is not a list of objects with the key."""
    right = f"type(variables.after.{field}) == list && size(variables.after.{field}) == size(variables.{field}After)"
    return (
        f"(!({cel_text(field)} in variables.after) || ({_same_list(field)}) || ({right}) ? [] :\n"
        f"  [{_no_list(f'spec.podTemplate.spec.{field}', _LISTS[field])}])"
    )


def _fields() -> str:
    return f"""\
variables.after.filter(k, !(k in {cel_list(FIELDS)}) &&
  !(k in variables.before && variables.before[k] == variables.after[k]))
.map(k, 'spec.podTemplate.spec.' + k)"""


def _affinity() -> str:
    after, before = (f"variables.{when}.?affinity.orValue({{}})" for when in ("after", "before"))
    return f"""\
({after} == {before} ? [] :
  type({after}) != map ? ['spec.podTemplate.spec.affinity, which is not an object'] :
  {after}.filter(k, !(k in {cel_list(AFFINITY)}) && !(type({before}) == map && k in {before} &&
    {before}[k] == {after}[k]))
  .map(k, 'spec.podTemplate.spec.affinity.' + k + ' (use topologySpreadConstraints to spread servers)'))"""


def _containers() -> str:
    return f"""\
variables.containersNow.filter(c, c.name != {cel_text(names.CONTAINER_SERVER)} && !(c in variables.containersBefore))
.map(c, 'the additional container ' + c.name)"""


_SERVER = f"variables.containersNow.filter(c, c.name == {cel_text(names.CONTAINER_SERVER)})"


def _was(of: str, there: str) -> str:
    """CEL: whether `there` is true for the server's container before the change; `o` is that container."""
    return f"{of}.exists(o, o.name == {cel_text(names.CONTAINER_SERVER)} && {there})"


def _joined(faults: str) -> str:
    """CEL: the faults of the server's container, joined. There may be several containers with its name."""
    return f"{_SERVER}\n.map(c, {faults}.join(', ')).filter(s, s != '')"


def _container_fields() -> str:
    same = _was("variables.containersBefore", "k in o && o[k] == c[k]")
    return _joined(
        f"c.filter(k, !(k in {cel_list(CONTAINER)}) && !{same})\n"
        f"  .map(k, 'spec.podTemplate.spec.containers[{names.CONTAINER_SERVER}].' + k)"
    )


def _had(e: str) -> str:
    """CEL: whether the server had the same variable before, from spec.server.env or spec.podTemplate."""
    in_template = _was("variables.containersBefore", f"{e} in {_once(_list('o', 'env'), 'name')}")
    return f"({e} in variables.envBefore || {in_template})"


def _refers(e: str) -> str:
    """CEL: whether a variable has a source that isn't allowed."""
    return (
        f"!{e}.all(k, k in ['name', 'value'] || (k == 'valueFrom' && type({e}.valueFrom) == map &&\n"
        f"    {e}.valueFrom.all(f, f in {cel_list(VALUE_FROM)})))"
    )


_VARIABLE = "'the variable ' + e.name + ' from a Secret or ConfigMap'"


def _server_env() -> str:
    return f"variables.envAfter.filter(e, {_refers('e')} && !{_had('e')})\n.map(e, {_VARIABLE})"


def _container_env() -> str:
    return _joined(
        f"({_malformed('c', 'env')} ? [{_no_list('env', 'name')}] :\n"
        f"  {_list('c', 'env')}.filter(e, {_refers('e')} && !{_had('e')}).map(e, {_VARIABLE}))"
    )


def _no_list(field: str, key: str) -> str:
    return cel_text(f"{field}, which is not a list of at most {MAX_ITEMS} objects with a {key}")


def _malformed(of: str, field: str) -> str:
    """CEL: whether a container has the field, but not as a list of objects with names."""
    here = f"{of}.{field}"
    return (
        f"{cel_text(field)} in {of} && (type({here}) != list || size({here}) > {MAX_ITEMS} || "
        f"!{here}.all(i, type(i) == map && type(i.?name.orValue(0)) == string))"
    )


_EMPTY_DIR = "v.all(k, k in ['name', 'emptyDir'])"


def _volumes() -> str:
    return f"""\
variables.volumesNow.filter(v, !{_EMPTY_DIR} && !(v in variables.volumesBefore))
.map(v, 'the volume ' + v.name + ' (only emptyDir is allowed)')"""


def _mounts() -> str:
    """CEL: mounts of volumes other than emptyDir, which may contain a Secret of another user.

    Of several volumes with one name only the last has an effect, so all of them must be emptyDir.
    """
    known = (
        f"(m.name in {cel_list(OWN_VOLUMES)} || variables.volumesAfter.exists(v, v.name == m.name)) &&\n"
        f"    variables.volumesAfter.all(v, v.name != m.name || {_EMPTY_DIR})"
    )
    same = _was("variables.containersBefore", f"m in {_once(_list('o', 'volumeMounts'), 'mountPath')}")
    return _joined(
        f"({_malformed('c', 'volumeMounts')} ? [{_no_list('volumeMounts', 'name')}] :\n"
        f"  {_list('c', 'volumeMounts')}.filter(m, !({known}) && !{same})\n"
        "  .map(m, 'a mount of the volume ' + m.name + ' (only emptyDir is allowed)'))"
    )


def _tolerations() -> str:
    """CEL: tolerations of taints whose key is not one of the server's extended resources.

    When the server no longer has the resource, the toleration is refused too. The admission plugin
    ExtendedResourceToleration adds the same tolerations.
    """

    def allowed(held: str) -> str:
        return f"(t.key in {cel_list(TOLERATIONS)} || t.key in variables.{held})"

    before = f"t in variables.tolerationsBefore && !{allowed('heldBefore')}"
    return f"""\
variables.tolerationsAfter.filter(t, !{allowed("heldAfter")} && !({before}))
.map(t, 'the toleration of ' + t.key + ' (its key is no extended resource in spec.server.resources.limits)')"""


def _changed(field: str) -> str:
    """CEL: the keys of the template's labels or annotations that are new or have a new value."""
    after, before = (f"dyn({o}).spec.?podTemplate.?metadata.?{field}.orValue({{}})" for o in ("object", "oldObject"))
    return f"""\
oldObject == null ? {after}.map(k, string(k)) :
{after}.filter(k, !(k in {before} && {before}[k] == {after}[k])).map(k, string(k))"""

"""Policies on what a user gets through a TritonModel: no part of a pod, no NetworkPolicy and no PodDisruptionBudget
that the user may not create directly.

Of a pod there is an allow list: what Kubernetes invents tomorrow is refused until it has been looked at. Everything in
the spec that reaches the pod as it was written goes through it: `spec.podTemplate` and `spec.server.env`.
"""

from __future__ import annotations

from triton_operator.api import kinds, names

from . import admission
from .admission import Object, cel_list, cel_text

POD_TEMPLATE = f"pod-template.{names.GROUP}"
NETWORK = f"network-policy.{names.GROUP}"
DISRUPTION = f"disruption.{names.GROUP}"

FIELDS = ("affinity", "containers", "nodeSelector", "tolerations", "topologySpreadConstraints", "volumes")
"""Of spec.podTemplate.spec."""
AFFINITY = ("nodeAffinity",)
"""Affinity between pods may name those of other namespaces, and keep them off a node."""
CONTAINER = ("name", "args", "command", "env", "volumeMounts", "workingDir")
"""Of the server's container; any other container is refused."""
VALUE_FROM = ("fieldRef", "resourceFieldRef")
"""Of environment variables: what the pod tells of itself, and no Secret, ConfigMap or file."""
ANNOTATIONS = ("kubectl.kubernetes.io/restartedAt",)
"""Those without a prefix are the user's own; one with a prefix is an instruction to some program."""
TOLERATIONS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Every pod has these; others are for the accelerators that the server asks for."""
MOST = 64
"""Items of any list: what the API server computes for a request stays small, whatever is asked for."""
OWN_VOLUMES = ("models", "shm", "tmp", "tools")


def pod_template() -> Object:
    """Refuses what is new and not allowed; what stood there before holds nobody else up."""
    return admission.policy(
        POD_TEMPLATE,
        rules=[admission.rule(names.GROUP, [names.PLURAL], "CREATE", "UPDATE")],
        # The status, the scale, a threshold and a label are none of its business.
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
                    "' (Services and NetworkPolicies pick pods by them)')",
                    f"variables.annotations.filter(k, k.contains('/') && !(k in {cel_list(ANNOTATIONS)}))"
                    ".map(k, 'spec.podTemplate.metadata.annotations ' + k + ' (with a prefix it speaks to a program)')",
                ]
            ),
        },
        validations=[
            {
                "expression": f"{_may_create('', 'pods')} ||\nsize(variables.faults) == 0",
                "message": "spec.podTemplate and spec.server.env have what needs the verb create on pods",
                "messageExpression": "request.userInfo.username + ' may not create pods in ' + request.namespace + "
                "', and so may not ask for ' + variables.faults.join(', ') + ': leave it out, or ask for the verb "
                "create on pods'",
                "reason": "Forbidden",
            },
        ],
    )


def network_policy() -> Object:
    """spec.networkPolicy is for users who may create NetworkPolicies. Policies add up, so a new one opens what another
    closes; and to remove one opens as well, whether by a change or by a deletion of the TritonModel."""

    def network(obj: str) -> str:
        return f"({obj} == null ? null : dyn({obj}).spec.?networkPolicy.orValue(null))"

    return _needs_create(
        NETWORK,
        kinds.NETWORK_POLICY,
        operations=("CREATE", "UPDATE", "DELETE"),
        unless=f"{network('object')} == {network('oldObject')}",
        what="request.operation == 'DELETE' ? 'delete a TritonModel that has spec.networkPolicy' : "
        "'change spec.networkPolicy'",
        remedy="leave it as it is",
    )


def disruption() -> Object:
    """A PodDisruptionBudget that lets no pod go holds up the drain of every node that has one: it is for users who
    may create PodDisruptionBudgets. A percentage is rounded up, so 0 alone lets no pod go."""

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
    """A policy that refuses a request unless the CEL expression `unless` holds or the user may create objects of
    `kind`. `what`: CEL for what the user wants to do, after "may not"; `remedy`: what to do instead."""
    return admission.policy(
        name,
        rules=[admission.rule(names.GROUP, [names.PLURAL], *operations)],
        conditions={"not-a-controller-of-kubernetes": f"!({admission.CONTROLLERS})"},
        validations=[
            {
                "expression": f"{unless} ||\n{_may_create(kind.group, kind.plural)}",
                "message": f"this needs the verb create on {kind.plural}",
                "messageExpression": f"request.userInfo.username + ' may not create {kind.plural} in ' + "
                f"request.namespace + ', and so may not ' + ({what}) + ': {remedy}, or ask for the verb create on "
                f"{kind.plural}'",
                "reason": "Forbidden",
            },
        ],
    )


def _may_create(group: str, plural: str) -> str:
    where = f"group({cel_text(group)}).resource({cel_text(plural)}).namespace(request.namespace)"
    return f"authorizer.{where}.check('create').allowed()"


_LISTS = {"containers": "name", "volumes": "name", "tolerations": "key"}
"""Lists of the template that are looked into, and what each item must have."""


def _template(obj: str) -> str:
    return f"dyn({obj}).spec.?podTemplate.?spec.orValue({{}})"


def _env(obj: str) -> str:
    return f"dyn({obj}).spec.?server.?env.orValue([]).filter(e, type(e) == map && type(e.?name.orValue(0)) == string)"


def _held(obj: str) -> str:
    """CEL: the extended resources (Kubernetes' IsExtendedResourceName) of which a server holds at least one. Of any
    other resource a pod may request none with a limit of one, so that every node has enough."""
    extended = "k.contains('/') && !k.contains('kubernetes.io/') && !k.startsWith('requests.')"
    return (
        f"[dyn({obj}).spec.?server.?resources.?limits.orValue({{}})].map(l, "
        f"l.filter(k, {extended} && isQuantity(string(l[k])) &&\n"
        "  quantity(string(l[k])).isGreaterThan(quantity('0'))))[0]"
    )


def _list(of: str, field: str) -> str:
    """CEL: a list that can be judged; [] where there is none."""
    here = f"{of}.?{field}.orValue([])"
    return f"(type({here}) == list && size({here}) <= {MOST} ? {here} : [])"


def _well_formed(of: str, field: str, key: str) -> str:
    """CEL: the items of a list that can be judged; the template has no schema."""
    return f"{_list(of, field)}.filter(i, type(i) == map && type(i.?{key}.orValue(0)) == string)"


def _once(items: str, key: str) -> str:
    """CEL: the items that no other stood in for: of several of one name the last counts, and may have been harmless."""
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
    """CEL: a fault where the field is no list of named objects."""
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
  type({after}) != map ? ['spec.podTemplate.spec.affinity as anything but an object'] :
  {after}.filter(k, !(k in {cel_list(AFFINITY)}) && !(type({before}) == map && k in {before} &&
    {before}[k] == {after}[k]))
  .map(k, 'spec.podTemplate.spec.affinity.' + k + ' (topologySpreadConstraints spread)'))"""


def _containers() -> str:
    return f"""\
variables.containersNow.filter(c, c.name != {cel_text(names.CONTAINER_SERVER)} && !(c in variables.containersBefore))
.map(c, 'a container ' + c.name)"""


_SERVER = f"variables.containersNow.filter(c, c.name == {cel_text(names.CONTAINER_SERVER)})"


def _was(of: str, there: str) -> str:
    """CEL: whether the server's container had something before; `o` is that container."""
    return f"{of}.exists(o, o.name == {cel_text(names.CONTAINER_SERVER)} && {there})"


def _joined(faults: str) -> str:
    """CEL: the faults of each server's container, as one; there is mostly one."""
    return f"{_SERVER}\n.map(c, {faults}.join(', ')).filter(s, s != '')"


def _container_fields() -> str:
    same = _was("variables.containersBefore", "k in o && o[k] == c[k]")
    return _joined(
        f"c.filter(k, !(k in {cel_list(CONTAINER)}) && !{same})\n"
        f"  .map(k, 'spec.podTemplate.spec.containers[{names.CONTAINER_SERVER}].' + k)"
    )


def _had(e: str) -> str:
    """CEL: whether the server had this very variable before, by either of the two ways."""
    in_template = _was("variables.containersBefore", f"{e} in {_once(_list('o', 'env'), 'name')}")
    return f"({e} in variables.envBefore || {in_template})"


def _refers(e: str) -> str:
    """CEL: whether a variable is more than a name with a value."""
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
    return cel_text(f"{field} as anything but a list of at most {MOST} objects with a {key}")


def _malformed(of: str, field: str) -> str:
    """CEL: whether a container's field is there and no list of objects with names."""
    here = f"{of}.{field}"
    return (
        f"{cel_text(field)} in {of} && (type({here}) != list || size({here}) > {MOST} || "
        f"!{here}.all(i, type(i) == map && type(i.?name.orValue(0)) == string))"
    )


_EMPTY_DIR = "v.all(k, k in ['name', 'emptyDir'])"


def _volumes() -> str:
    return f"""\
variables.volumesNow.filter(v, !{_EMPTY_DIR} && !(v in variables.volumesBefore))
.map(v, 'the volume ' + v.name + ' (anything but emptyDir)')"""


def _mounts() -> str:
    """CEL: mounts of volumes that the user has not made: somebody else's Secret would be a mount away. Of several
    volumes of one name the last counts, so that all must be empty ones."""
    known = (
        f"(m.name in {cel_list(OWN_VOLUMES)} || variables.volumesAfter.exists(v, v.name == m.name)) &&\n"
        f"    variables.volumesAfter.all(v, v.name != m.name || {_EMPTY_DIR})"
    )
    same = _was("variables.containersBefore", f"m in {_once(_list('o', 'volumeMounts'), 'mountPath')}")
    return _joined(
        f"({_malformed('c', 'volumeMounts')} ? [{_no_list('volumeMounts', 'name')}] :\n"
        f"  {_list('c', 'volumeMounts')}.filter(m, !({known}) && !{same})\n"
        "  .map(m, 'a mount of the volume ' + m.name + ' (anything but emptyDir)'))"
    )


def _tolerations() -> str:
    """CEL: tolerations of taints whose key is no extended resource that the server holds. A toleration that such a
    resource allowed is refused once the server no longer holds it. The admission plugin ExtendedResourceToleration sets
    the same tolerations by itself."""

    def allowed(held: str) -> str:
        return f"(t.key in {cel_list(TOLERATIONS)} || t.key in variables.{held})"

    before = f"t in variables.tolerationsBefore && !{allowed('heldBefore')}"
    return f"""\
variables.tolerationsAfter.filter(t, !{allowed("heldAfter")} && !({before}))
.map(t, 'the toleration of ' + t.key + ' (no extended resource in spec.server.resources.limits)')"""


def _changed(field: str) -> str:
    """CEL: the keys of the template's labels or annotations that are new, or have another value."""
    after, before = (f"dyn({o}).spec.?podTemplate.?metadata.?{field}.orValue({{}})" for o in ("object", "oldObject"))
    return f"""\
oldObject == null ? {after}.map(k, string(k)) :
{after}.filter(k, !(k in {before} && {before}[k] == {after}[k])).map(k, string(k))"""

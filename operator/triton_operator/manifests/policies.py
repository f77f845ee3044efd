"""Admission policies, generated from the tables of thresholds and kinds.

They check the values of thresholds, who may set them, and who may write generated objects. The policies against
privilege escalation are in `escalation`. The API server evaluates the CEL expressions; they work with Kubernetes 1.30.
"""

from __future__ import annotations

from triton_operator.api import kinds, names, thresholds
from triton_operator.render.children import KINDS

from . import escalation, in_place
from .admission import CONTROLLERS, Object, bound, cel_list, cel_map, cel_text, policy, rule

SET_THRESHOLDS = "setthresholds"
"""The verb on tritonmodels that allows setting thresholds."""
EDIT_GENERATED = "editgenerated"
"""The verb on tritonmodels that allows writing generated objects."""

VALUES = f"threshold-values.{names.GROUP}"
AUTHORS = f"thresholds.{names.GROUP}"
"""Its audit annotations are `thresholds.tritonoperator.io/changes` and `…/changed-by`."""
DELETION = f"threshold-deletion.{names.GROUP}"
GENERATED = f"generated.{names.GROUP}"
SERVERS = f"servers.{names.GROUP}"

_ALIASED = [k for k in thresholds.KINDS if k.alias]
_NAMES = [k.name for k in thresholds.KINDS]


def manifests() -> dict[str, list[Object]]:
    """Returns the policies with their bindings, by file name."""
    return {
        "threshold_values": bound(_values(), "Deny", "Audit"),
        "thresholds": bound(_authors(), "Deny", "Audit"),
        "threshold_deletion": bound(_deletion(), "Warn", "Audit"),
        "generated": bound(_generated(), "Deny", "Audit"),
        "servers": bound(_servers(), "Deny", "Audit"),
        "in_place": bound(in_place.containers(), "Deny", "Audit", params=True),
        "pod_template": bound(escalation.pod_template(), "Deny", "Audit"),
        "network_policy": bound(escalation.network_policy(), "Deny", "Audit"),
        "disruption": bound(escalation.disruption(), "Deny", "Audit"),
    }


def _values() -> Object:
    """Refuses threshold annotations that thresholds.parse rejects.

    Checks only the annotations that a request changes, so that existing invalid ones don't block other changes.
    """
    return policy(
        VALUES,
        rules=[rule(names.GROUP, [names.PLURAL], "CREATE", "UPDATE")],
        variables={
            "before": _annotations("oldObject"),
            "after": _annotations("object"),
            "counter": "object.spec.?monitoring.?tokenCounter.orValue('')",
            # Includes likely mistakes: a missing prefix, or the wrong one of `-` and `_`. They would have no effect.
            "written": f"""\
variables.after.filter(k,
  !(k in variables.before && variables.before[k] == variables.after[k]) && k != {_CALIBRATION} &&
  (k.startsWith({cel_text(thresholds.PREFIX)}) || k.split('.')[0].replace('_', '-') in {cel_list(_NAMES)}))
.map(k, {{
  'key': string(k),
  'text': string(variables.after[k]),
  'slot': {_slot("string(k)")}
}})
.map(e, {{
  'key': e.key,
  'text': e.text,
  'kind': e.slot.split('.', 2)[0],
  'version': e.slot.contains('.') ? e.slot.split('.', 2)[1] : ''
}})
.map(e, {{
  'key': e.key,
  'text': e.text,
  'kind': e.kind,
  'version': e.version,
  'clash': !e.text.matches({cel_text(thresholds.VALUE_PATTERN)}) ? '' :
    {_spellings()}
    .filter(o, o in variables.after && variables.after[o].matches({cel_text(thresholds.VALUE_PATTERN)}) &&
      double(variables.after[o]) != double(e.text))
    .map(o, o + '=' + variables.after[o]).join(' and ')
}})""",
            "wrong": f"variables.written.map(e,\n{_fault()}\n).filter(fault, fault != '')",
            "countBefore": f"size(variables.before.filter(k, {_is_threshold('k')}))",
            "countAfter": f"size(variables.after.filter(k, {_is_threshold('k')}))",
        },
        validations=[
            {
                "expression": f"variables.countAfter <= {thresholds.MAX_THRESHOLDS} || "
                "variables.countAfter <= variables.countBefore",
                "message": f"at most {thresholds.MAX_THRESHOLDS} threshold annotations are allowed",
                "messageExpression": f"string(variables.countAfter) + ' threshold annotations, but "
                f"at most {thresholds.MAX_THRESHOLDS} are allowed: {thresholds.REMOVE_SOME}'",
                "reason": "Invalid",
            },
            {
                "expression": "size(variables.wrong) == 0",
                "message": "a threshold annotation is invalid",
                "messageExpression": "variables.wrong.join('; ')",
                "reason": "Invalid",
            },
            {
                "expression": f"size(variables.after[?{_CALIBRATION}].orValue('')) <= {names.CALIBRATION_MAX} ||\n"
                f"variables.after[?{_CALIBRATION}] == variables.before[?{_CALIBRATION}]",
                "message": f"the annotation {names.ANNOTATION_CALIBRATION} has at most {names.CALIBRATION_MAX} "
                "characters: it contains the last result of kubectl triton calibrate",
                "reason": "Invalid",
            },
            {
                "expression": f"""\
!({cel_text(_MAX_TPS)} in variables.after) || variables.counter != '' ||
oldObject == null || oldObject.spec.?monitoring.?tokenCounter.orValue('') == ''""",
                "message": f"the annotation {_MAX_TPS} needs spec.monitoring.tokenCounter: remove the annotation first",
                "reason": "Invalid",
            },
        ],
    )


_CALIBRATION = cel_text(names.ANNOTATION_CALIBRATION)
_MAX_TPS = thresholds.PREFIX + thresholds.MAX_TPS.name


def _slot(key: str) -> str:
    """CEL: the kind and version in a key, such as `max-qps.v2`; "" if it isn't the key of a threshold."""
    out = "''"
    for kind in _ALIASED:
        means = f"{key} == {cel_text(kind.alias)} || {key}.startsWith({cel_text(kind.alias + '.')})"
        out = f"{means} ? {cel_text(kind.name)} + {key}.substring({len(kind.alias)}) : {out}"
    prefix = thresholds.PREFIX
    return f"{key}.startsWith({cel_text(prefix)}) ? {key}.substring({len(prefix)}) :\n    {out}"


def _fault() -> str:
    """CEL: what is wrong with the entry `e`, or "". The order of the checks is that of thresholds.parse."""
    shown = "(e.text.matches('^[ -~]{1,32}$') ? \"'\" + e.text + \"'\" : 'its value')"
    versioned = cel_list([k.name for k in thresholds.KINDS if k.versioned])
    known = ", ".join(
        [f"{thresholds.PREFIX}{k.name}" + (f" (and {k.name}.v2 for version 2)" if k.versioned else "")
         for k in thresholds.KINDS]
    )  # fmt: skip
    lower = cel_map({k.name: repr(float(k.lower)) for k in thresholds.KINDS})
    upper = cel_map({k.name: repr(float(k.upper)) for k in thresholds.KINDS})
    bounds = cel_map({k.name: cel_text(f"above {k.lower:.0f} and at most {k.upper:.0f}") for k in thresholds.KINDS})
    cases = [
        (
            f"!(e.kind in {cel_list(_NAMES)})",
            f"e.key + {cel_text(f' is not a threshold; the thresholds are {known}: correct the name or remove it')}",
        ),
        (
            f"e.version != '' && !(e.kind in {versioned})",
            "e.key + ': ' + e.kind + ' applies to all versions; remove the .' + e.version",
        ),
        (
            f"e.version != '' && !e.version.matches({cel_text(thresholds.VERSION_PATTERN)})",
            "e.key + ': ' + e.version + ' is not a model version such as 2 or v2'",
        ),
        (
            f"!e.text.matches({cel_text(thresholds.VALUE_PATTERN)})",
            f"e.key + ': ' + {shown} + ' is not a plain number such as 80 or 12.5 (without a unit)'",
        ),
        (
            f"double(e.text) <= {lower}[e.kind] || double(e.text) > {upper}[e.kind]",
            f"e.key + '=' + e.text + ': must be ' + {bounds}[e.kind] + "
            "(double(e.text) == 0.0 ? '; remove the annotation to have no limit' : '')",
        ),
        (
            f"e.kind == {cel_text(thresholds.MAX_TPS.name)} && variables.counter == ''",
            "e.key + ': max-tps needs a token counter: set spec.monitoring.tokenCounter to the counter in "
            "the metrics of Triton, or use max-qps'",
        ),
        ("e.clash != ''", "e.key + '=' + e.text + ' and ' + e.clash + ' differ: remove one'"),
    ]
    return "\n".join(f"  {condition} ?\n    {message} :" for condition, message in cases) + "\n  ''"


def _spellings() -> str:
    """CEL: all keys that set the same threshold as the entry `e`, if there are several."""
    out = "[]"
    for kind in thresholds.KINDS:
        bases = [thresholds.PREFIX + kind.name, *([kind.alias] if kind.alias else [])]
        number = "e.version.replace('v', '')"
        versions = ", ".join(f"{cel_text(base + dot)} + {number}" for base in bases for dot in (".", ".v"))
        if kind.versioned:
            out = f"e.kind == {cel_text(kind.name)} && e.version != '' ? [{versions}] :\n    {out}"
        if kind.alias:
            out = f"e.kind == {cel_text(kind.name)} && e.version == '' ? {cel_list(bases)} :\n    {out}"
    return f"({out})"


def _authors() -> Object:
    """Requires the verb SET_THRESHOLDS for changes of thresholds, and the verb `update` for other changes.

    The result of a calibration, which is the reason for a threshold, needs SET_THRESHOLDS too. Records each change of a
    threshold in the audit log.
    """
    changes = "variables.changes.join(', ')"
    return policy(
        AUTHORS,
        rules=[rule(names.GROUP, [names.PLURAL], "CREATE", "UPDATE", "DELETE")],
        variables={
            "before": _annotations("oldObject"),
            "after": _annotations("object"),
            "changed": "variables.before.filter(k, !(k in variables.after && variables.after[k] == "
            "variables.before[k])) +\nvariables.after.filter(k, !(k in variables.before))",
            "changes": f"""\
variables.changed.filter(k, {_is_guarded("k")})
.map(k, k == {_CALIBRATION} ? k + ': changed' :
  k + ': ' + variables.before[?k].orValue('none') + ' → ' + variables.after[?k].orValue('none'))""",
            # Without managedFields, which the API server changes with every write.
            "others": f"""\
request.operation != 'UPDATE' ? [] :
(object.spec == oldObject.spec ? [] : ['spec']) +
{" + ".join(_differs(f, e) for f, e in (("labels", "{}"), ("ownerReferences", "[]"), ("finalizers", "[]")))} +
variables.changed.filter(k, !({_is_guarded("k")})).map(k, 'the annotation ' + k)""",
        },
        validations=[
            {
                # A deletion is only recorded here; the policy DELETION warns about it.
                "expression": "request.operation == 'DELETE' || size(variables.changes) == 0 ||\n"
                + _allowed(SET_THRESHOLDS),
                "message": f"thresholds need the verb {SET_THRESHOLDS} on {names.PLURAL}",
                "messageExpression": f"""\
request.userInfo.username + ' may not set thresholds (' + {changes} + '): that needs the verb {SET_THRESHOLDS} on \
{names.PLURAL}, which the role tritonmodel-oncall has. Remove the annotations from the manifest; kubectl apply keeps \
annotations that the manifest never had'""",
                "reason": "Forbidden",
            },
            {
                "expression": f"size(variables.others) == 0 ||\n{_allowed('update')}",
                "message": f"changes other than thresholds need the verb update on {names.PLURAL}",
                "messageExpression": "request.userInfo.username + ' may set thresholds, but not change ' + "
                f"variables.others.join(', ') + ': that needs the verb update on {names.PLURAL}, which the role "
                "tritonmodel-developer has. Use kubectl annotate for thresholds'",
                "reason": "Forbidden",
            },
        ],
        audit={
            "changes": "size(variables.changes) == 0 ? '' :\n"
            f"(has(request.dryRun) && request.dryRun ? 'dry run: ' : '') + {changes}",
            "changed-by": "size(variables.changes) == 0 ? '' : request.userInfo.username",
        },
    )


def _differs(field: str, empty: str) -> str:
    was, now = (f"{o}.metadata.?{field}.orValue({empty})" for o in ("oldObject", "object"))
    return f"({now} == {was} ? [] : [{cel_text(field)}])"


def _deletion() -> Object:
    """Warns users who delete a TritonModel with thresholds and may not set them again."""
    return policy(
        DELETION,
        rules=[rule(names.GROUP, [names.PLURAL], "DELETE")],
        conditions={"not-a-controller-of-kubernetes": f"!({CONTROLLERS})"},
        variables={
            "lost": f"oldObject.metadata.?annotations.orValue({{}}).filter(k, {_is_threshold('k')})\n"
            ".map(k, k + '=' + oldObject.metadata.annotations[k])"
        },
        validations=[
            {
                "expression": f"size(variables.lost) == 0 ||\n{_allowed(SET_THRESHOLDS)}",
                "message": "the deletion also deletes the thresholds of the TritonModel",
                "messageExpression": "'the deletion of ' + oldObject.metadata.name + ' also deletes its thresholds "
                "(' + variables.lost.join(', ') + '), and ' + request.userInfo.username + ' may not set them again: "
                f"that needs the verb {SET_THRESHOLDS} on {names.PLURAL}'",
                "reason": "Forbidden",
            }
        ],
    )


def _generated() -> Object:
    """Allows writes of generated objects only to users with the verb EDIT_GENERATED.

    This includes requests that add or remove the operator's label, because the selector matches the old and the new
    object. For an object without a controller (after `kubectl delete --cascade=orphan` of its TritonModel), the policy
    allows deleting it and removing the label. It allows everyone the marks that KEDA sets on a ScaledObject, because
    the name of KEDA's account isn't known.
    """
    by_group: dict[str, list[str]] = {}
    for kind in KINDS:
        by_group.setdefault(kind.group, []).append(kind.plural)
    obj = "(object == null ? oldObject : object)"
    label = cel_text(names.LABEL_MANAGED_BY)
    return policy(
        GENERATED,
        rules=[rule(group, plurals, "CREATE", "UPDATE", "DELETE") for group, plurals in by_group.items()],
        selector={names.LABEL_MANAGED_BY: names.FIELD_MANAGER},
        conditions={"not-a-controller-of-kubernetes": f"!({CONTROLLERS})"},
        variables={
            "orphan": "oldObject != null && "
            "!oldObject.metadata.?ownerReferences.orValue([]).exists(r, r.?controller.orValue(false))",
            "marked": f"request.resource.resource == {cel_text(kinds.SCALED_OBJECT.plural)} && "
            f"request.operation == 'UPDATE' &&\n{_only_marked()}",
            "released": f"variables.orphan && (object == null || !({label} in object.metadata.?labels.orValue({{}})))",
            "remedy": f"""\
variables.orphan ? 'No {names.KIND} owns it: delete it, or remove the label' :
  'Change the {names.KIND} ' + {obj}.metadata.?labels.orValue({{}})[?{cel_text(names.LABEL_MODEL)}]
    .orValue('in its label {names.LABEL_MODEL}') + ' instead (spec.podTemplate takes all other fields of pods)'""",
        },
        validations=[
            {
                "expression": f"variables.released || variables.marked ||\n{_allowed(EDIT_GENERATED, of_one=False)}",
                "message": f"{names.FIELD_MANAGER} manages this object: change the {names.KIND} instead",
                "messageExpression": f"""\
request.userInfo.username + ' may not write ' + request.resource.resource + ' with the label \
{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}: the operator manages them. ' + variables.remedy + \
', or get a role with the verb {EDIT_GENERATED} on {names.PLURAL}'""",
                "reason": "Forbidden",
            }
        ],
    )


_KEDA_LABEL, _KEDA_FINALIZER = "scaledobject.keda.sh/name", "finalizer.keda.sh"


def _only_marked() -> str:
    """CEL: whether an update changes nothing but KEDA's label and finalizer.

    KEDA also adds spec.advanced.scalingModifiers, empty, because Go writes empty structures.
    """
    spec, advanced = "dyn({}).spec", "dyn({}).spec.?advanced.orValue({{}})"
    modifiers = "dyn({}).spec.?advanced.?scalingModifiers.orValue({{}})"

    def field(obj: str, name: str, empty: str) -> str:
        return f"{obj}.metadata.?{name}.orValue({empty})"

    def within(one: str, other: str) -> list[str]:
        return [
            _kept(field(one, "labels", "{}"), field(other, "labels", "{}"), _KEDA_LABEL),
            f"{field(one, 'finalizers', '[]')}.all(f, f == {cel_text(_KEDA_FINALIZER)} || "
            f"f in {field(other, 'finalizers', '[]')})",
            _kept(spec.format(one), spec.format(other), "advanced"),
            _kept(advanced.format(one), advanced.format(other), "scalingModifiers"),
        ]

    same = [
        f"{field('object', name, empty)} == {field('oldObject', name, empty)}"
        for name, empty in (("annotations", "{}"), ("ownerReferences", "[]"))
    ]
    same.append(f"{modifiers.format('object')} == {modifiers.format('oldObject')}")
    return " &&\n".join([*same, *within("object", "oldObject"), *within("oldObject", "object")])


def _kept(one: str, other: str, ignored: str) -> str:
    """CEL: whether the map `other` has all entries of the map `one`, without the key `ignored`."""
    return f"{one}.all(k, k == {cel_text(ignored)} || {other}[?k].orValue('') == {one}[k])"


def _servers() -> Object:
    """Allows the label that the Services select by only on pods of the TritonModel's Deployment.

    Controllers of Kubernetes create the Deployment's ReplicaSets and their pods. For a ReplicaSet, the policy checks
    the labels of its pod template. It applies only to requests that add or change the label.
    """
    label, pods = cel_text(names.LABEL_MODEL), "request.resource.resource == 'pods'"

    def labels(obj: str) -> str:
        return f"({pods} ? dyn({obj}) : dyn({obj}).spec.template).metadata.?labels.orValue({{}})"

    def model(obj: str) -> str:
        return f"{labels(obj)}[?{label}].orValue('')"

    maker = f"""\
({pods} ?
  r.kind == 'ReplicaSet' && r.name == variables.model + '-' + {labels("object")}[?'pod-template-hash'].orValue('') :
  r.kind == 'Deployment' && r.name == variables.model)"""
    return policy(
        SERVERS,
        rules=[rule(kind.group, [kind.plural], "CREATE", "UPDATE") for kind in (kinds.POD, kinds.REPLICA_SET)],
        conditions={
            "the-label-is-set": f"{model('object')} != '' &&\n"
            f"(oldObject == null || {model('object')} != {model('oldObject')})",
        },
        variables={"model": model("object")},
        validations=[
            {
                "expression": f"""\
(({CONTROLLERS}) &&
  object.metadata.?ownerReferences.orValue([]).exists(r, r.?controller.orValue(false) && {maker})) ||
{_allowed(EDIT_GENERATED, of_one=False)}""",
                "message": f"only servers of a {names.KIND} may have the label {names.LABEL_MODEL}: use another label",
                "messageExpression": f"""\
request.userInfo.username + ' may not set the label {names.LABEL_MODEL}=' + variables.model + ' on ' + \
request.resource.resource + ': the Services of the {names.KIND} ' + variables.model + ' select its servers by this \
label. Use another label, or get a role with the verb {EDIT_GENERATED} on {names.PLURAL}'""",
                "reason": "Forbidden",
            }
        ],
    )


def _is_threshold(key: str) -> str:
    """CEL: thresholds.is_threshold."""
    prefix = thresholds.PREFIX
    known = (
        f"{key}.startsWith({cel_text(prefix)}) && {key}.substring({len(prefix)}).split('.')[0] in {cel_list(_NAMES)}"
    )
    aliases = [f"{key} == {cel_text(k.alias)} || {key}.startsWith({cel_text(k.alias + '.')})" for k in _ALIASED]
    return " || ".join([f"({known})", *aliases])


def _is_guarded(key: str) -> str:
    """CEL: whether the annotation needs the verb SET_THRESHOLDS."""
    return f"{_is_threshold(key)} || {key} == {_CALIBRATION}"


def _allowed(verb: str, of_one: bool = True) -> str:
    """CEL: whether the authorizer allows `verb` on the request's TritonModel, or on all of its namespace.

    With generateName, the name isn't known yet at a creation, so a role that is limited to names doesn't match.
    """
    name = f".name({_NAME})" if of_one else ""
    return (
        f"authorizer.group({cel_text(names.GROUP)}).resource({cel_text(names.PLURAL)})"
        f".namespace(request.namespace){name}.check({cel_text(verb)}).allowed()"
    )


_NAME = "object != null ? object.metadata.?name.orValue('') : oldObject.metadata.name"
"""The request of a deletecollection contains no name."""


def _annotations(obj: str) -> str:
    return f"{obj} == null ? {{}} : {obj}.metadata.?annotations.orValue({{}})"

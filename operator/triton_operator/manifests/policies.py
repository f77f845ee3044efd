"""Admission policies, made from the tables of thresholds and kinds: values that can be read, who may set them, and
who may write what the operator makes. What nobody shall get in a roundabout way is in `escalation`.

The API server evaluates them; the expressions are CEL as Kubernetes 1.30 knows it.
"""

from __future__ import annotations

from triton_operator.api import kinds, names, thresholds
from triton_operator.render.children import KINDS

from . import escalation
from .admission import CONTROLLERS, Object, bound, cel_list, cel_map, cel_text, policy, rule

SET_THRESHOLDS = "setthresholds"
"""The verb on tritonmodels of whoever may set thresholds."""
EDIT_GENERATED = "editgenerated"
"""The verb on tritonmodels of whoever may write the objects that the operator makes for them."""

VALUES = f"threshold-values.{names.GROUP}"
AUTHORS = f"thresholds.{names.GROUP}"
"""Its audit annotations are `thresholds.tritonoperator.io/changes` and `…/changed-by`."""
DELETION = f"threshold-deletion.{names.GROUP}"
GENERATED = f"generated.{names.GROUP}"
SERVERS = f"servers.{names.GROUP}"

_ALIASED = [k for k in thresholds.KINDS if k.alias]
_NAMES = [k.name for k in thresholds.KINDS]


def manifests() -> dict[str, list[Object]]:
    """The policies with their bindings, by the name of the file that holds them."""
    return {
        "threshold_values": bound(_values(), "Deny", "Audit"),
        "thresholds": bound(_authors(), "Deny", "Audit"),
        "threshold_deletion": bound(_deletion(), "Warn", "Audit"),
        "generated": bound(_generated(), "Deny", "Audit"),
        "servers": bound(_servers(), "Deny", "Audit"),
        "pod_template": bound(escalation.pod_template(), "Deny", "Audit"),
        "network_policy": bound(escalation.network_policy(), "Deny", "Audit"),
        "disruption": bound(escalation.disruption(), "Deny", "Audit"),
    }


def _values() -> Object:
    """Refuses what thresholds.parse can't read. Only what a request changes is looked at: an old fault must not
    keep a finalizer, a label or a correction out."""
    return policy(
        VALUES,
        rules=[rule(names.GROUP, [names.PLURAL], "CREATE", "UPDATE")],
        variables={
            "before": _annotations("oldObject"),
            "after": _annotations("object"),
            "counter": "object.spec.?monitoring.?tokenCounter.orValue('')",
            # With the prefix forgotten, or another spelling of the underscore, a threshold would do nothing.
            "written": f"""\
variables.after.filter(k,
  !(k in variables.before && variables.before[k] == variables.after[k]) &&
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
                "expression": f"variables.countAfter <= {thresholds.MOST} || "
                "variables.countAfter <= variables.countBefore",
                "message": f"at most {thresholds.MOST} threshold annotations are allowed",
                "messageExpression": f"string(variables.countAfter) + ' threshold annotations, but "
                f"at most {thresholds.MOST} are allowed: {thresholds.REMOVE_SOME}'",
                "reason": "Invalid",
            },
            {
                "expression": "size(variables.wrong) == 0",
                "message": "a threshold's annotation is wrong",
                "messageExpression": "variables.wrong.join('; ')",
                "reason": "Invalid",
            },
            {
                "expression": f"""\
!({cel_text(_MAX_TPS)} in variables.after) || variables.counter != '' ||
oldObject == null || oldObject.spec.?monitoring.?tokenCounter.orValue('') == ''""",
                "message": f"spec.monitoring.tokenCounter is what {_MAX_TPS} counts by: remove that annotation first",
                "reason": "Invalid",
            },
        ],
    )


_MAX_TPS = thresholds.PREFIX + thresholds.MAX_TPS.name


def _slot(key: str) -> str:
    """CEL: the kind and version that a key names, `max-qps.v2`; "" where it is no threshold's."""
    out = "''"
    for kind in _ALIASED:
        means = f"{key} == {cel_text(kind.alias)} || {key}.startsWith({cel_text(kind.alias + '.')})"
        out = f"{means} ? {cel_text(kind.name)} + {key}.substring({len(kind.alias)}) : {out}"
    prefix = thresholds.PREFIX
    return f"{key}.startsWith({cel_text(prefix)}) ? {key}.substring({len(prefix)}) :\n    {out}"


def _fault() -> str:
    """CEL: what is wrong with the entry `e`, in the order in which thresholds.parse looks; "" where nothing is."""
    shown = "(e.text.matches('^[ -~]{1,32}$') ? \"'\" + e.text + \"'\" : 'its value')"
    versioned = cel_list([k.name for k in thresholds.KINDS if k.versioned])
    known = ", ".join(
        [f"{thresholds.PREFIX}{k.name}" + (f" (and {k.name}.v2 for version 2)" if k.versioned else "")
         for k in thresholds.KINDS]
    )  # fmt: skip
    least = cel_map({k.name: repr(float(k.least)) for k in thresholds.KINDS})
    most = cel_map({k.name: repr(float(k.most)) for k in thresholds.KINDS})
    bounds = cel_map({k.name: cel_text(f"above {k.least:.0f} and at most {k.most:.0f}") for k in thresholds.KINDS})
    cases = [
        (
            f"!(e.kind in {cel_list(_NAMES)})",
            f"e.key + {cel_text(f' is no threshold; there are {known}: correct the name or remove it')}",
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
            f"double(e.text) <= {least}[e.kind] || double(e.text) > {most}[e.kind]",
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
    """CEL: every key that means what the entry `e` means, where there are several."""
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
    """Thresholds are for whom the authorizer allows SET_THRESHOLDS, anything else for whom it allows `update`; each
    change of a threshold goes on record."""
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
variables.changed.filter(k, {_is_threshold("k")})
.map(k, k + ': ' + variables.before[?k].orValue('none') + ' → ' + variables.after[?k].orValue('none'))""",
            # managedFields change with every write and are the API server's.
            "others": f"""\
request.operation != 'UPDATE' ? [] :
(object.spec == oldObject.spec ? [] : ['spec']) +
{" + ".join(_differs(f, e) for f, e in (("labels", "{}"), ("ownerReferences", "[]"), ("finalizers", "[]")))} +
variables.changed.filter(k, !({_is_threshold("k")})).map(k, 'the annotation ' + k)""",
        },
        validations=[
            {
                # What a deletion takes away goes on record here, and is DELETION's to judge.
                "expression": "request.operation == 'DELETE' || size(variables.changes) == 0 ||\n"
                + _allowed(SET_THRESHOLDS),
                "message": f"thresholds need the verb {SET_THRESHOLDS} on {names.PLURAL}",
                "messageExpression": f"""\
request.userInfo.username + ' may not set thresholds (' + {changes} + '): that needs the verb {SET_THRESHOLDS} on \
{names.PLURAL}, which the role tritonmodel-oncall has. kubectl apply leaves alone what the manifest never named'""",
                "reason": "Forbidden",
            },
            {
                "expression": f"size(variables.others) == 0 ||\n{_allowed('update')}",
                "message": f"only thresholds may be changed without the verb update on {names.PLURAL}",
                "messageExpression": "request.userInfo.username + ' may set thresholds only, and not change ' + "
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
    """Warns whoever deletes thresholds with their TritonModel and couldn't set them again."""
    return policy(
        DELETION,
        rules=[rule(names.GROUP, [names.PLURAL], "DELETE")],
        conditions={"people-and-programs": f"!({CONTROLLERS})"},
        variables={
            "lost": f"oldObject.metadata.?annotations.orValue({{}}).filter(k, {_is_threshold('k')})\n"
            ".map(k, k + '=' + oldObject.metadata.annotations[k])"
        },
        validations=[
            {
                "expression": f"size(variables.lost) == 0 ||\n{_allowed(SET_THRESHOLDS)}",
                "message": "its thresholds go with it",
                "messageExpression": "oldObject.metadata.name + ' has thresholds (' + variables.lost.join(', ') + "
                "') that go with it; ' + request.userInfo.username + ' can not set them again: that needs the verb "
                f"{SET_THRESHOLDS} on {names.PLURAL}'",
                "reason": "Forbidden",
            }
        ],
    )


def _generated() -> Object:
    """Only a user whom the authorizer allows EDIT_GENERATED may write an object with the operator's label. A request
    that adds or removes the label counts as well: the selector looks at the old and the new object. An object without a
    controller (`kubectl delete --cascade=orphan` of its TritonModel) is nobody's: whoever may delete it may, and
    whoever may update it may take the label off."""
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
            "released": f"variables.orphan && (object == null || !({label} in object.metadata.?labels.orValue({{}})))",
            "remedy": f"""\
variables.orphan ? 'It has no {names.KIND}: delete it, or remove the label' :
  'Change the {names.KIND} ' + {obj}.metadata.?labels.orValue({{}})[?{cel_text(names.LABEL_MODEL)}]
    .orValue('which {names.LABEL_MODEL} names') + ' instead (spec.podTemplate takes what has no field)'""",
        },
        validations=[
            {
                "expression": f"variables.released ||\n{_allowed(EDIT_GENERATED, of_one=False)}",
                "message": f"it is {names.FIELD_MANAGER}'s: change the {names.KIND} instead",
                "messageExpression": f"""\
request.userInfo.username + ' may not write ' + request.resource.resource + ' with the label \
{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}: they are the operator\\'s. ' + variables.remedy + \
', or ask for the verb {EDIT_GENERATED} on {names.PLURAL}'""",
                "reason": "Forbidden",
            }
        ],
    )


def _servers() -> Object:
    """Only pods of the TritonModel's Deployment get the label by which its Services select. Kubernetes' controllers
    create them: the Deployment's ReplicaSet, and its pods. For a ReplicaSet the labels of its template count. The
    policy applies only to requests that add or change the label."""
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
            "the-label-comes": f"{model('object')} != '' &&\n"
            f"(oldObject == null || {model('object')} != {model('oldObject')})",
        },
        variables={"model": model("object")},
        validations=[
            {
                "expression": f"""\
(({CONTROLLERS}) &&
  object.metadata.?ownerReferences.orValue([]).exists(r, r.?controller.orValue(false) && {maker})) ||
{_allowed(EDIT_GENERATED, of_one=False)}""",
                "message": f"the label {names.LABEL_MODEL} is for the servers of a {names.KIND}",
                "messageExpression": f"""\
request.userInfo.username + ' may not give the label {names.LABEL_MODEL}=' + variables.model + ' to ' + \
request.resource.resource + ': it is for the servers of the {names.KIND} ' + variables.model + ', and its Services \
select by it. Use another label, or ask for the verb {EDIT_GENERATED} on {names.PLURAL}'""",
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


def _allowed(verb: str, of_one: bool = True) -> str:
    """CEL: whether the authorizer allows `verb` on the request's TritonModel, or on all of its namespace. A name that
    the API server makes up isn't known yet at a creation, and is none's that a role names."""
    name = f".name({_NAME})" if of_one else ""
    return (
        f"authorizer.group({cel_text(names.GROUP)}).resource({cel_text(names.PLURAL)})"
        f".namespace(request.namespace){name}.check({cel_text(verb)}).allowed()"
    )


_NAME = "object != null ? object.metadata.?name.orValue('') : oldObject.metadata.name"
"""A deletion of a whole collection names none in the request."""


def _annotations(obj: str) -> str:
    return f"{obj} == null ? {{}} : {obj}.metadata.?annotations.orValue({{}})"

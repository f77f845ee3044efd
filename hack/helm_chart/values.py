"""The values of the chart triton-operator, in the order of values.yaml: defaults, descriptions and schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from helm_chart import json_schema
from helm_chart.json_schema import Schema
from helm_chart.sources import DASHBOARD_OPTIONS, DEPLOYMENT, container, environment

_LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_OWN_LABEL = "app.kubernetes.io/name"
_COMMON_LABELS: Schema = {**_LABELS, "propertyNames": {"not": {"const": _OWN_LABEL}}}
_NAMED: Schema = {"type": "array", "items": {"type": "object", "required": ["name"]}}
_BOOLEAN: Schema = {"type": "boolean"}
_STRING: Schema = {"type": "string"}
_NAMESPACE = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAMESPACES: Schema = {"type": "string", "pattern": f"^({_NAMESPACE}(, *{_NAMESPACE})*)?$"}
_URL: Schema = {"type": "string", "pattern": r"^(https?://[^\s/]+.*)?$"}


def _number(minimum: int) -> Schema:
    """Returns the schema of a setting that is a number, or empty for the operator's own default."""
    return {"anyOf": [{"type": "integer", "minimum": minimum}, {"type": "string", "pattern": "^[0-9]*$"}]}


@dataclass(frozen=True)
class Value:
    """One value. `help` is its description in values.yaml, the schema and the README."""

    help: str
    default: Any
    schema: Schema


@dataclass(frozen=True)
class Group:
    """Values with a common prefix."""

    values: dict[str, Value | Group]
    help: str = ""


_POD: dict[str, Any] = DEPLOYMENT["spec"]["template"]["spec"]
_IMAGE = str(container()["image"])
_SETTING_SCHEMAS: dict[str, tuple[str, Schema]] = {
    "PROMETHEUS_NAMESPACES": (
        "Comma-separated namespaces whose Prometheus resources the operator queries; empty means none. Only trusted "
        "users may create Prometheus resources there.",
        _NAMESPACES,
    ),
    "PROMETHEUS_URL": (
        "The Prometheus to query for live thresholds. Empty means the Prometheus that selects the rules. For a port "
        "other than 9090, or an address outside the cluster, add a rule to networkPolicy.extraEgress.",
        _URL,
    ),
    "PROMETHEUS_CREDENTIALS": (
        "The directory of a mounted Secret (extraVolumes, extraVolumeMounts) with the file token, or the files "
        "username and password, for PROMETHEUS_URL.",
        _STRING,
    ),
    "KEDA_AUTHENTICATION": (
        "How KEDA authenticates to PROMETHEUS_URL: MODE/NAME of a ClusterTriggerAuthentication, such as "
        "bearer/prometheus. The modes are basic, bearer, tls and custom.",
        _STRING,
    ),
    "LOG_FORMAT": ("json or plain.", {"enum": ["json", "plain"]}),
    "LOG_LEVEL": ("DEBUG, INFO, WARNING or ERROR.", {"enum": ["DEBUG", "INFO", "WARNING", "ERROR"]}),
    "WORKERS": ("Number of TritonModels that are reconciled at the same time.", _number(1)),
    "PROGRESS_SECONDS": ("Minimum time between two status updates that only report a step.", _number(0)),
    "RESYNC_SECONDS": ("Time between two resyncs.", _number(1)),
    "DISCOVERY_SECONDS": ("Time between two checks for optional kinds.", _number(1)),
    "COLLECT_SECONDS": (
        "Time that Kubernetes' garbage collector gets to delete the children of a deleted TritonModel.",
        _number(1),
    ),
    "METRICS_SECONDS": ("Minimum time between two renderings of the operator's metrics.", _number(0)),
    "SAMPLE_LIMIT": ("Maximum number of samples of one scrape of a server.", _number(100)),
    "METRICS_JOB": ("The label `job` of the operator's metrics, if your scrape configuration sets it.", _STRING),
    "RATE_LIMIT_SERVICE": (
        "true if Envoy Gateway has a rate limit service: then all proxies of a Gateway count together for max-qps.",
        {"enum": ["", "true", "false", True, False]},
    ),
    "RUNBOOKS_URL": ("Base URL of the runbooks, for the alerts.", _URL),
}
SETTINGS = tuple(_SETTING_SCHEMAS)
"""The settings of the operator that are values. The chart sets the others."""


def _settings() -> dict[str, Value | Group]:
    """Returns the settings with their defaults in the Deployment, or empty for the operator's own default."""
    defaults = environment()
    return {name: Value(help_, defaults.get(name, ""), schema) for name, (help_, schema) in _SETTING_SCHEMAS.items()}


def _switch(help_: str, **others: Value | Group) -> Group:
    return Group({"enabled": Value(help_, False, _BOOLEAN), **others})


VALUES = Group(
    {
        "scope": Value(
            "What to install:\n"
            "- Cluster: an operator for all namespaces, the admission policies and the roles for people.\n"
            "- Namespace: an operator for the release's namespace, with a Role and no cluster-wide object. The "
            "policies and the roles are cluster-wide: install them once, as a release with the scope None.\n"
            "- None: no operator, only the policies and the roles.",
            "Cluster",
            {"enum": ["Cluster", "Namespace", "None"]},
        ),
        "watchNamespaces": Value(
            "The namespaces to watch; empty means all. With namespaces, the operator gets a RoleBinding in each "
            "instead of the ClusterRoleBinding. They must exist. Only with the scope Cluster.",
            [],
            {"type": "array", "items": {"type": "string", "pattern": f"^{_NAMESPACE}$"}, "uniqueItems": True},
        ),
        "image": Group(
            {
                "repository": Value("The operator's image, without a tag.", _IMAGE, {"type": "string", "minLength": 1}),
                "tag": Value("The tag. Empty means the version of the chart's operator.", "", _STRING),
                "digest": Value(
                    "The digest, such as sha256:0123…. It takes precedence over the tag.",
                    "",
                    {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                ),
                "pullPolicy": Value(
                    "Empty means Kubernetes' default.", "", {"enum": ["", "Always", "IfNotPresent", "Never"]}
                ),
            },
            "The operator's image. The init containers of the servers run from it too.",
        ),
        "imagePullSecrets": Value(
            "Secrets to pull the image with, such as [{name: registry}]. For the servers' pods, in the namespaces of "
            "the TritonModels, set spec.modelImage.pullSecrets.",
            [],
            json_schema.of("[LocalObjectReference]"),
        ),
        "replicas": Value(
            "One replica leads; the others are standbys that take over within seconds.",
            DEPLOYMENT["spec"]["replicas"],
            {"type": "integer", "minimum": 0},
        ),
        "resources": Value(
            "Resources of each replica. The operator shares 3/16 of its memory limit between the namespaces for "
            "stored objects.",
            container()["resources"],
            json_schema.of("ResourceRequirements"),
        ),
        "settings": Group(
            _settings(),
            "Settings of the operator, by the names of their environment variables. docs/operations.md describes each. "
            "Except for the first, empty means the operator's default.",
        ),
        "extraEnv": Value(
            "More environment variables of the operator, such as SSL_CERT_FILE.", [], json_schema.of("[EnvVar]")
        ),
        "extraVolumes": Value("Volumes of the operator's pods, such as a CA certificate.", [], _NAMED),
        "extraVolumeMounts": Value(
            "Where the operator's container has them. A CA for PROMETHEUS_URL needs SSL_CERT_FILE in extraEnv too.",
            [],
            _NAMED,
        ),
        "nodeSelector": Value("Labels of the nodes to run on.", _POD["nodeSelector"], _LABELS),
        "tolerations": Value("Taints of nodes to tolerate.", [], json_schema.of("[Toleration]")),
        "affinity": Value("Affinity to nodes and pods.", {}, json_schema.of("Affinity")),
        "topologySpreadConstraints": Value(
            "Spreads the replicas over nodes and zones, if there are several.",
            _POD["topologySpreadConstraints"],
            json_schema.of("[TopologySpreadConstraint]"),
        ),
        "priorityClassName": Value("PriorityClass of the operator's pods.", "", _STRING),
        "podSecurityContext": Value(
            "Security context of the operator's pods. The image's user is 65532; OpenShift chooses another one.",
            _POD["securityContext"],
            json_schema.of("PodSecurityContext"),
        ),
        "podLabels": Value("Labels of the operator's pods.", {}, _COMMON_LABELS),
        "podAnnotations": Value("Annotations of the operator's pods.", {}, _LABELS),
        "commonLabels": Value(
            f"Labels of every object. {_OWN_LABEL} is the chart's own and isn't allowed.", {}, _COMMON_LABELS
        ),
        "policies": Group(
            {
                "enabled": Value(
                    "Install the admission policies. They check thresholds and who may set them, protect generated "
                    "objects, and prevent privilege escalation (docs/security.md).",
                    True,
                    _BOOLEAN,
                )
            }
        ),
        "userRoles": Group(
            {
                "enabled": Value(
                    "Install the roles for people: tritonmodel-viewer, tritonmodel-developer, tritonmodel-oncall, "
                    "tritonmodel-modelcontrol.",
                    True,
                    _BOOLEAN,
                )
            }
        ),
        "networkPolicy": Group(
            {
                "enabled": Value("Restrict the traffic of the operator's pods.", True, _BOOLEAN),
                "extraEgress": Value(
                    "More egress rules of the NetworkPolicy, as in its spec.egress.",
                    [],
                    {"type": "array", "items": {"type": "object"}},
                ),
            }
        ),
        "monitoring": Group(
            {
                "labels": Value(
                    "Labels of the ServiceMonitor and the PrometheusRule, for a Prometheus that selects by labels, "
                    "such as {release: kube-prometheus-stack}.",
                    {},
                    _COMMON_LABELS,
                ),
                "serviceMonitor": _switch("Let Prometheus scrape the operator. Thresholds need it to be live."),
                "rules": _switch("Install the alerts on the operator. Each TritonModel has its own."),
            },
            "Needs the CRDs of prometheus-operator.",
        ),
        "dashboards": _switch(
            "Install the Grafana dashboards as ConfigMaps for Grafana's sidecar.",
            labels=Value("The labels that the sidecar selects by.", DASHBOARD_OPTIONS["labels"], _LABELS),
            annotations=Value("Annotations of the ConfigMaps: the folder.", DASHBOARD_OPTIONS["annotations"], _LABELS),
        ),
        "adapterRules": _switch(
            "Install the rule for autoscaling as the ConfigMap triton-operator-adapter-rules. In the chart "
            "prometheus-adapter, set rules.existing to this name, metricsRelistInterval to 30s and metricsMaxAge to "
            "10m. If your adapter has other rules, append this rule to them instead.",
            namespace=Value("The namespace of prometheus-adapter.", "monitoring", _NAMESPACES),
        ),
    }
)

CRD_VALUES = Group(
    {
        "keep": Value("Keep the CRD, and with it all TritonModels, when the release is uninstalled.", True, _BOOLEAN),
        "labels": Value("Labels of the CRD.", {}, _LABELS),
        "annotations": Value("Annotations of the CRD.", {}, _LABELS),
    }
)

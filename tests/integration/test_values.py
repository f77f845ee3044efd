"""`kubectl triton render` and the API server agree on values: a number for text, text for a number, a null."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from kubectl_triton import rules
from kubectl_triton.main import main
from support.api import Api
from support.controlplane import ControlPlane
from triton_operator.api.plain_yaml import KubectlLoader, PlainDumper
from triton_operator.api.types import TritonModel
from triton_operator.manifests import values
from triton_operator.render import Facts, choose, render

pytestmark = pytest.mark.integration

HEAD = "apiVersion: tritonoperator.io/v1alpha1\nkind: TritonModel\n"
Verdict = Callable[[str], str]


@pytest.fixture
def verdict(control_plane: ControlPlane, api: Api) -> Verdict:
    """Returns the API server's refusal of a TritonModel (YAML), or of what the operator makes of it; "" for none.

    The operator gets the object as the API server would store it.
    """

    def kubectl(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["kubectl", f"--kubeconfig={control_plane.kubeconfig}", f"--namespace={api.namespace}", *arguments]
        return subprocess.run([*command, "--dry-run=server", "--output=json", "--filename=-"], input=text,
                              capture_output=True, text=True, check=False)  # fmt: skip

    def ask(text: str) -> str:
        created = kubectl(text, "create")
        if created.returncode:
            return created.stderr
        model = TritonModel.model_validate(json.loads(created.stdout))
        for obj in render(model, choose(model, None, Facts("t:1", "Copy"))):
            if obj["apiVersion"].startswith(("monitoring.coreos.com", "keda.sh", "gateway.")):
                continue  # this API server doesn't have them
            del obj["metadata"]["ownerReferences"]
            applied = kubectl(json.dumps(obj), "apply", "--server-side")
            if applied.returncode:
                return applied.stderr
        return ""

    return ask


def spec(fields: str) -> str:
    return f'{HEAD}metadata: {{name: detection}}\nspec:\n  modelImage: {{reference: "r:1"}}\n  {fields}\n'


def container(fields: str) -> str:
    return spec(f"podTemplate: {{spec: {{containers: [{{name: side, image: i, {fields}}}]}}}}")


def variable(value: str) -> str:
    return spec(f"server: {{env: [{{name: A, value: {value}}}]}}")


def pod(fields: str) -> str:
    return spec(f"podTemplate: {{spec: {{{fields}}}}}")


def metadata(fields: str) -> str:
    return f'{HEAD}metadata: {{name: detection, {fields}}}\nspec: {{modelImage: {{reference: "r:1"}}}}\n'


REFUSED = [
    # What YAML makes of a value without quotes.
    *map(variable, ["2", "2.5", "true", "yes", "y", "Off", "1e3", "0o17", "017", "09", "0x1f", "0b11", "1_000", ".5",
                    "1.", "+1", "-1", ".inf", "[]", "{}"]),
    spec("server: {env: [null]}"),
    *(spec(f"monitoring: {{latency: {{p99: {time}}}}}") for time in (
        "200", "1m", "-1ms", "1.2345s", "'1 s'", "''", ".5s",
    )),
    spec("server: {env: {A: b}}"),
    spec("server: {args: [--log-info=1, 1]}"),
    spec("server: {args: [null]}"),
    spec("server: {args: --log-info=1}"),
    *(spec(f"server: {{logVerbosity: {value}}}") for value in ('"2"', "2.5", "true", "9223372036854775808")),
    spec('replicas: "2"'),
    spec('monitoring: {enabled: "true"}'),
    spec("monitoring: {labels: {a: 1}}"),
    spec("monitoring: {objective: 99.9}"),
    spec('autoscaling: {max: 2, utilization: "0.5"}'),
    spec('autoscaling: {max: 2, behavior: {scaleUp: {policies: [{type: Pods, value: "2", periodSeconds: 15}]}}}'),
    *(spec(f"server: {{resources: {{limits: {{cpu: {value}}}}}}}") for value in ("0.5", "true", "-1", "lots")),
    spec("entrypoint: 5"),
    *(spec(f"server: {{sharedMemory: {value}}}") for value in ("lots", "1e999", "-1", "'1e100'")),
    spec("podTemplate: {metadata: {labels: {a: 1}}}"),
    spec("podTemplate: {metadata: {annotations: {a: true}}}"),
    pod("nodeSelector: {gpu: true}"),
    pod("containers: [{name: triton, env: [{name: A, value: 2}, {name: B, value: true}]}]"),
    pod("containers: [null]"),
    pod('priority: "5"'),
    pod('hostNetwork: "true"'),
    pod("tolerations: [{key: a, operator: Exists, tolerationSeconds: 5.5}]"),
    pod("terminationGracePeriodSeconds: 9223372036854775808"),
    pod('volumes: [{name: v, configMap: {name: c, defaultMode: "0644"}}]'),
    *map(container, ["args: [1]", "command: [true]", "args: [null]", "env: [null]",
                     'ports: [{containerPort: "80"}]', "ports: [{containerPort: 80, name: 80}]"]),
    # The API server refuses these when the operator writes the Deployment.
    *(container(f"ports: [{{containerPort: 80, name: {name}}}]")
      for name in ('"80"', "Web", "a_b", "a--b", "-a", "a-name-of-17-chars")),
    *(container(f"livenessProbe: {{httpGet: {{port: {port}}}}}") for port in ('"80"', "80.5", "true", "Web")),
    container('lifecycle: {preStop: {httpGet: {port: "80"}}}'),
    *(container(f"resources: {{limits: {{cpu: {value}}}}}") for value in ("true", "-1", "lots", "[]")),
    spec('models: [{name: a, config: {max_batch_size: "1"}}]'),
    spec("models: [{name: a, config: {parameters: {x: {string_value: 5}}}}]"),
    spec("networkPolicy: {egress: [{ports: [{port: true}]}]}"),
    spec('networkPolicy: {egress: [{ports: [{port: "80"}]}]}'),
    metadata("labels: {a: 1}"),
    metadata("annotations: {tritonoperator.io/max-qps: 80}"),
    HEAD + "metadata: {name: 5}\nspec: {modelImage: {reference: r}}",
    *(f"{HEAD}metadata: {{name: detection}}\nspec: {value}"
      for value in ("null", "[]", "text", "{modelImage: null}", "{modelImage: {reference: null}}")),
]  # fmt: skip
ARGS = "server: {args: ["
SELECTOR = "{matchExpressions: [{key: a, operator: In}]}"
LONG = ", ".join(f"{key}: {'x' * 16000}" for key in "abcde")
RULES = [
    HEAD + "metadata: {name: Detection}\nspec: {modelImage: {reference: r}}",
    HEAD + f"metadata: {{name: a{'b' * 60}}}\nspec: {{modelImage: {{reference: r}}}}",
    *(spec(f"server: {{modelControl: explicit, loadModels: {models}}}") for models in ("[a, b]", "[]", "['a,b']")),
    spec("server: {loadModels: [a]}"),
    spec("replicas: 2\n  autoscaling: {max: 2}"),
    spec("healthRequest: {file: a/r.json}\n  entrypoint: b\n  server: {modelControl: explicit, loadModels: [b]}"),
    spec("healthRequest: {file: a/r.json}\n  server: {args: ['--http-restricted-api=inference:k=v']}"),
    spec("healthRequest: {file: a/r.json}\n  server: {args: ['--cache-config=local,size=9']}\n  "
         "models: [{name: a, config: {response_cache: {enable: true}}}]"),
    spec("models: [{name: a, config: {}}]\n  server: {args: [--model-config-name=x]}"),
    *(spec(f"monitoring: {{latency: {{p99: {time}}}}}") for time in ("0ms", "0.09ms", "100.1s", "999999s")),
    *(spec(f"monitoring: {{latency: {{}}}}\n  server: {{args: ['{flag}']}}") for flag in (
        "--trace-config=rate=1", "--http-restricted-api=model-config,trace,logging:k=v",
        "--http-restricted-api', 'trace:k=v", "--http-restricted-api=metadata:k=v",
    )),
    *(spec(f"{ARGS}{args}]}}") for args in (
        "--load-model=a", "--metrics-config, counter_latencies=false", "--metrics-config=gauge_latencies=true",
        "'--log-info 1'", "tritonserver", "'--http-restricted-api=health:k=v'",
        "--http-restricted-api, 'health:k=v'",
    )),
    *(spec(f"server: {{resources: {{limits: {{{limit}}}, requests: {{{request}}}}}}}") for limit, request in (
        ("cpu: 1", "cpu: 1500m"), ("memory: 1Gi", "memory: 1025Mi"), ("memory: 1Gi", "nvidia.com/gpu: 1"),
    )),
    *(spec(f"autoscaling: {{{scaling}}}") for scaling in ("min: 3, max: 2", "engine: Direct, min: 0, max: 2")),
    *(spec(f"monitoring: {{alertLabels: {{{label}: a}}}}") for label in ("severity", "a-b")),
    *(spec(f"networkPolicy: {{{peers}: [{peer}]{end}}}")
      for peers, end in (("clients", ""), ("monitoring", ""), ("egress: [{to", "}]"))
      for peer in ("{}", "{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}", f"{{podSelector: {SELECTOR}}}",
                   f"{{namespaceSelector: {SELECTOR}}}")),
    spec("networkPolicy: {egress: [{ports: [{port: web, endPort: 9}]}]}"),
    spec("route: {gateway: {name: a}, hostnames: [a.example.com], grpc: {}}"),
    spec("memoryGrowth: Replace"),
    spec("memoryGrowth: Replace\n  monitoring: {enabled: false, processes: true}"),
    spec("canary: {weight: 5}"),
    spec("canary: {modelImage: {reference: r}, weight: 5, steps: [1, 5]}"),
    spec("canary: {modelImage: {reference: r}, weight: 60}"),
    spec("canary: {modelImage: {reference: r}, mirror: true}"),
    spec("canary: {modelImage: {reference: r}, comparePercent: 1}\n  "
         "route: {gateway: {name: a}, hostnames: [a.example.com]}"),
    spec("canary: {modelImage: {reference: r}}\n  "
         "route: {gateway: {name: a}, hostnames: [a.example.com], hashHeader: x-sequence}"),
    spec("canary: {models: [{name: a, config: {}}]}\n  server: {args: [--model-config-name=x]}"),
    spec("networkPolicy: {egress: [{ports: [{port: 90, endPort: 9}]}]}"),
    *(spec(f"rollout: {{maxSurge: {surge}, maxUnavailable: 0%}}") for surge in ("0", "0%")),
    *(spec(f"commonMetadata: {{{field}: {{{key}: a}}}}") for field in ("labels", "annotations")
      for key in ("tritonoperator.io/a", "app.kubernetes.io/name", "a b", "A.b/c")),
    spec(f"podTemplate: {{metadata: {{annotations: {{{LONG}}}}}}}"),
]  # fmt: skip
"""What rules of the CRD refuse."""
ACCEPTED = [
    spec("autoscaling: {engine: KEDA, min: 0, max: 2}"),
    spec("replicas: 2\n  autoscaling: {engine: None, max: 2}"),
    spec("server: {modelControl: explicit, loadModels: [a]}"),
    spec("entrypoint: b\n  server: {modelControl: explicit, loadModels: [a, b]}"),
    spec("healthRequest: {file: b/r.json}\n  entrypoint: b\n  server: {modelControl: explicit, loadModels: [b]}"),
    spec(f"{ARGS}--log-info=true, --metrics-config=summary_latencies=true]}}"),
    spec("server: {resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 1000m, memory: 1024Mi}}}"),
    spec("networkPolicy: {clients: [{podSelector: {}, namespaceSelector: {}}], "
         "egress: [{ports: [{port: 9, endPort: 90}]}]}"),
    spec("route: {gateway: {name: a}, hostnames: ['*.example.com'], grpc: {listener: grpc}, hashHeader: x-sequence}"),
    spec("canary: {modelImage: {reference: r}, server: {image: s}, models: [{name: a, config: {}}], weight: 50, "
         "steps: [20, 5], gate: {stepSeconds: 60, minRequests: 1000, maxSlowdownPercent: 10}}"),
    spec("canary: {models: []}\n  server: {args: [--model-config-name=x]}"),
    spec("monitoring: {latency: {}}\n  server: {args: ['--http-restricted-api=logging:k=trace']}"),
    spec("monitoring: {latency: {}}\n  server: {args: ['--grpc-restricted-protocol', 'trace:k=v']}"),
    spec("monitoring: {latency: {p50: 0.1ms, p90: 0.05s, p95: 1.5s, p99: 100s}}"),
    *(spec(f"canary: {{server: {{image: s}}, mirror: {mirror}, comparePercent: {percent}}}\n  "
           "route: {gateway: {name: a}, hostnames: [a.example.com]}")
      for mirror, percent in (("true", 0), ("true", 100), ("false", 0))),
    spec("canary: {server: {image: s}, weight: 100}\n  route: {gateway: {name: a}, hostnames: [a.example.com]}"),
    spec("commonMetadata: {labels: {cost-centre: a, example.com/b: c}}"),
    *map(variable, ['"2"', "2024-01-02", "12:30", "1.2.3", "~", "yess", "1e", "0o8"]),
    spec("server:"),
    spec("server: {args: null}"),
    spec("server: {logVerbosity: 2.0}"),
    spec("replicas: 2.0"),
    spec("replicas: null"),
    spec("monitoring: {enabled: on}"),
    spec("monitoring: {labels: {a: null}}"),
    spec("monitoring: {labels: {1: a, true: b}}"),
    spec("server: {resources: {limits: {cpu: 2, memory: 1Gi}}}"),
    spec("server: {resources: {limits: {cpu: null}}}"),
    spec("server: {sharedMemory: 1e9}"),
    spec("rollout: {maxSurge: 25%, restartedAt: 2024-01-01T00:00:00Z}"),
    spec("models: [{name: a, config: {parameters: {x: {string_value: 2024-01-02}}}}]"),
    spec("networkPolicy: {egress: null}"),
    spec("networkPolicy: {egress: [{ports: [{port: 80}, {port: web}]}]}"),
    pod("nodeSelector: {gpu: null, 1: a}"),
    pod('nodeSelector: {example.com/a.port: "80", "name": "80"}'),
    pod("volumes: [{name: v, emptyDir: {sizeLimit: 1e3}}]"),
    pod("volumes: [{name: v, configMap: {name: c, items: [{key: a, path: b, mode: 0644}]}}]"),
    pod("terminationGracePeriodSeconds: 1e3"),
    *map(container, ["env: [{name: A, value: null}]", "ports: [{containerPort: 80.0, name: web-1}]",
                     "livenessProbe: {httpGet: {port: 80}}", "livenessProbe: {tcpSocket: {port: web}}",
                     "resources: {limits: {cpu: 1, memory: 0.5}}", "resources: {limits: {cpu: null}}"]),
    spec("podTemplate: {spec: null, metadata: null}"),
    metadata("annotations: null, labels: {a: null}"),
]  # fmt: skip


def shortened(text: str) -> str:
    return text.removeprefix(HEAD).replace('metadata: {name: detection}\nspec:\n  modelImage: {reference: "r:1"}\n', "")


@pytest.mark.parametrize("text", [*REFUSED, *RULES, *ACCEPTED], ids=lambda text: shortened(text)[:120])
def test_render_refuses_the_values_that_the_api_server_refuses(text: str, verdict: Verdict) -> None:
    result = CliRunner().invoke(main, ["render", "-"], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), repr(result.exception)
    refusal = verdict(text)
    assert bool(refusal) is (text not in ACCEPTED), refusal
    assert (result.exit_code != 0) is bool(refusal), f"{result.output}\nAPI server: {refusal}"


def test_a_rule_is_told_in_the_words_of_the_api_server(verdict: Verdict) -> None:
    for text in RULES:
        told = [fault.message for fault in rules.faults(values.stored(yaml.load(text, KubectlLoader)))]
        refusal = verdict(text)
        assert told, text
        assert all(message in refusal for message in told), (told, refusal)


SCALARS = """
1 -1 +1 0 00 007 08 09 010 0o7 0O7 0o8 0b1 0B1 0b2 0x1F 0Xf 0xg -0x1 +0o7 1_0 1__0 1_ _1 0_7 0x 0b 0o
1e3 1E3 1e+3 1e-3 1e +1e3 -1.5 1.5 1. .5 -.5 +.5 . -. 1.5.1 1_0.5 1._5 .5e1 1.e1 0.0 -0 1e400 -1e400
9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809 18446744073709551616
0xfffffffffffffffff -0xfffffffffffffffff 0777777777777777777777777777
y Y n N yes Yes YES yEs no No NO nO on On ON oN off Off OFF true True TRUE tRue false False FALSE t f T F
~ null Null NULL nULL nil none None = 12:30 1:2:3 190:20:30.15 2024-01-02 2024-1-2 2024-01-02T03:04:05Z
.inff .in nan inf .Nan infinity + -- a 1a a1 1,000 0.1.2 1Gi 500m 25% /a
"""


def comparable(value: Any) -> tuple[str, Any]:
    """Returns a value so that true differs from 1, and large numbers are as exact as in JSON."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return ("number", float(value)) if is_number else (type(value).__name__, value)


def test_reads_yaml_as_kubectl_does(control_plane: ControlPlane) -> None:
    lines = [f"  k{number}: {text}" for number, text in enumerate(SCALARS.split())]
    keys = ["  1: a", "  true: b", "  1.5: c", "  on: d", "  0x10: e", "  1e3: f", "  2024-01-02: g", '  "7": h']
    text = "\n".join([*HEAD.splitlines(), "metadata: {name: a}", "spec:", *lines, *keys])
    command = ["kubectl", f"--kubeconfig={control_plane.kubeconfig}", "create", "--dry-run=client", "--validate=false",
               "--output=json", "--filename=-"]  # fmt: skip
    result = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    expected, ours = json.loads(result.stdout)["spec"], yaml.load(text, KubectlLoader)["spec"]
    assert expected.keys() == ours.keys()
    words = {f"k{number}": text for number, text in enumerate(SCALARS.split())}
    differing = {
        words.get(key, key): (value, ours[key])
        for key, value in expected.items()
        if comparable(value) != comparable(ours[key])
    }
    assert not differing
    assert yaml.safe_load(yaml.dump(ours, Dumper=PlainDumper)) == ours


def test_what_render_prints_is_accepted(control_plane: ControlPlane, api: Api) -> None:
    """Text that YAML would read as something else stays text."""
    words = ["1e3", "0o17", "y", "N", "on", "012", "12:30", "2024-01-02", "null", "~", ".5", "1.", "0x1f", "<<", "1_0"]
    env = [{"name": f"A{number}", "value": word} for number, word in enumerate(words)]
    text = spec(f"server: {{env: {json.dumps(env)}}}")
    printed = CliRunner().invoke(main, ["render", "-n", api.namespace, "-"], input=text)
    (deployment,) = (text for text in printed.stdout.split("\n---\n") if "\nkind: Deployment\n" in text)
    command = ["kubectl", f"--kubeconfig={control_plane.kubeconfig}", f"--namespace={api.namespace}", "create",
               "--dry-run=client", "--output=json", "--validate=false", "--filename=-"]  # fmt: skip
    result = subprocess.run(command, input=deployment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    values = json.loads(result.stdout)["spec"]["template"]["spec"]["containers"][0]["env"]
    assert [variable.get("value") for variable in values if variable["name"] not in ("HOME", "USER")] == words

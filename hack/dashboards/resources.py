"""What the servers of one TritonModel use, and how many there are."""

from __future__ import annotations

from dashboards.parts import (
    LIMIT_CHANGED,
    MODEL,
    NAMESPACE,
    OF_POD,
    RATE,
    TRITONMODEL,
    Dashboard,
    Panel,
    Query,
    Row,
)
from triton_operator.api import names

SERVER = f'namespace="$namespace",container="{names.CONTAINER_SERVER}"'
JOIN = f"and on (namespace, pod) up{{{MODEL}}}"
JOINED = " The kubelet knows pods, not TritonModels: `up` says which pods are the TritonModel's."


def used(series: str, by: str = "pod") -> str:
    """A series of the kubelet about the pods of the chosen TritonModel."""
    return f"sum by ({by}) (({series})\n  {JOIN})"


def limit(resource: str) -> str:
    return used(f'kube_pod_container_resource_limits{{{SERVER},resource="{resource}"}}')


DASHBOARD = Dashboard(
    "resources",
    "Triton / Resources",
    "CPU, memory and accelerators of one TritonModel's servers, how many servers there are, and for how many there is "
    "load. Needs the kubelet's cAdvisor series and, for the limits, kube-state-metrics.",
    (NAMESPACE, TRITONMODEL),
    (LIMIT_CHANGED,),
    (
        Row(
            "Servers",
            (
                Panel(
                    "Replicas wanted and ready",
                    "`triton_operator_replicas`, from the operator: wanted by the spec or the autoscaler, ready by "
                    "the Deployment; the largest of what the operator's replicas say. Scraped: the sum of `up`.",
                    "short",
                    (
                        Query(f"max by (state) (triton_operator_replicas{{{MODEL}}})", "{{state}}"),
                        Query(f"sum by (tritonmodel) (up{{{MODEL}}})", "scraped"),
                    ),
                ),
                Panel(
                    "Load, in servers",
                    "`triton:load:replicas`: for how many servers there is load if each carried all that it is for: "
                    "demand ÷ max-qps-per-replica, or tokens ÷ their share, whichever is more. Predicted: "
                    "`triton:load_predicted:replicas`, by the line through the last 5 minutes, 2 minutes from now, at "
                    "most twice the load. `triton:autoscaler_load:replicas` is what the autoscaler reads; it aims at "
                    "`spec.autoscaling.utilization` of it for each server. No line: no limit, or no requests.",
                    "short",
                    (
                        Query(f"triton:load:replicas{{{MODEL}}}", "load"),
                        Query(f"triton:load_predicted:replicas{{{MODEL}}}", "predicted"),
                        Query(f"triton:autoscaler_load:replicas{{{MODEL}}}", "autoscaler"),
                        Query(
                            f'max by (tritonmodel) (triton_operator_replicas{{{MODEL},state="ready"}})', "ready servers"
                        ),
                    ),
                ),
            ),
        ),
        Row(
            "CPU and memory",
            (
                Panel(
                    "CPU",
                    f"`container_cpu_usage_seconds_total` of the container `{names.CONTAINER_SERVER}`, as a rate: "
                    "cores. Limit: `kube_pod_container_resource_limits`, of kube-state-metrics." + JOINED,
                    "short",
                    (
                        Query(used(f"rate(container_cpu_usage_seconds_total{{{SERVER}}}{RATE})"), "{{pod}}"),
                        Query(f"max({limit('cpu')})", "limit of a server", line="limit"),
                    ),
                    width=8,
                ),
                Panel(
                    "CPU throttled",
                    "`container_cpu_cfs_throttled_periods_total` ÷ `container_cpu_cfs_periods_total`: in which part "
                    "of the scheduler's periods the server was stopped by its CPU limit. More threads than cores do "
                    "that." + JOINED,
                    "percentunit",
                    (
                        Query(
                            used(f"rate(container_cpu_cfs_throttled_periods_total{{{SERVER}}}{RATE})")
                            + "\n/\n"
                            + used(f"rate(container_cpu_cfs_periods_total{{{SERVER}}}{RATE})"),
                            "{{pod}}",
                        ),
                    ),
                    width=8,
                    most=1,
                ),
                Panel(
                    "Memory",
                    "`container_memory_working_set_bytes`, which must stay under the limit; tensors in /dev/shm "
                    "are part of it. Limit: `kube_pod_container_resource_limits`." + JOINED,
                    "bytes",
                    (
                        Query(used(f"container_memory_working_set_bytes{{{SERVER}}}"), "{{pod}}"),
                        Query(f"max({limit('memory')})", "limit of a server", line="limit"),
                    ),
                    width=8,
                ),
            ),
        ),
        Row(
            "GPU and pinned memory",
            (
                Panel(
                    "GPU utilization",
                    "`nv_gpu_utilization` of each GPU that a server sees: the part of the time in which any kernel "
                    "ran, not how full the GPU was. GPU series are there only with NVIDIA GPUs.",
                    "percentunit",
                    (Query(f"max by (pod, gpu_uuid) (nv_gpu_utilization{{{MODEL}}})", "{{pod}} {{gpu_uuid}}"),),
                    most=1,
                ),
                Panel(
                    "GPU memory",
                    "`nv_gpu_memory_used_bytes` and `nv_gpu_memory_total_bytes`: of the GPU, whoever uses it.",
                    "bytes",
                    (
                        Query(f"max by (pod, gpu_uuid) (nv_gpu_memory_used_bytes{{{MODEL}}})", "{{pod}} {{gpu_uuid}}"),
                        Query(f"max(nv_gpu_memory_total_bytes{{{MODEL}}})", "a GPU's memory", line="limit"),
                    ),
                ),
                Panel(
                    "GPU power",
                    "`nv_gpu_power_usage`, in watts.",
                    "watt",
                    (Query(f"max by (pod, gpu_uuid) (nv_gpu_power_usage{{{MODEL}}})", "{{pod}} {{gpu_uuid}}"),),
                ),
                Panel(
                    "Pinned memory",
                    "`nv_pinned_memory_pool_used_bytes` and `nv_pinned_memory_pool_total_bytes`: the pool of "
                    "page-locked memory through which tensors go to a GPU. When it is full, copies become slower.",
                    "bytes",
                    (
                        Query(f"sum by ({OF_POD}) (nv_pinned_memory_pool_used_bytes{{{MODEL}}})", "{{pod}}"),
                        Query(f"max(nv_pinned_memory_pool_total_bytes{{{MODEL}}})", "a server's pool", line="limit"),
                    ),
                ),
            ),
        ),
    ),
)

"""The rules of one TritonModel: what Prometheus records and when it alerts. docs/metrics.md says how each series is
computed."""

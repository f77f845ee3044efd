"""The recording rules and alerts of one TritonModel. docs/metrics.md explains how each series is computed."""

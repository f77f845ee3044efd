"""The process: watches, work queue, lease, health, metrics, logging."""

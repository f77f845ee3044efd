"""Helpers for all kinds of tests: a real API server, operator, Prometheus and cluster to test against."""

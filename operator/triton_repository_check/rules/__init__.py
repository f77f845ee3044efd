"""The checks. Each is a pure function from a loaded Repository to findings."""

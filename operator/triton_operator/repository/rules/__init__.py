"""The checks, by what they look at. Each is pure: a loaded Repository in, findings out."""

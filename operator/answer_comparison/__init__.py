"""Compares the answers of a canary with those of the other servers, in a container of the canary's pods.

docs/decisions/0059-answers-of-a-canary.md
"""

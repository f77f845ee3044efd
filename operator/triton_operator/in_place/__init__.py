"""The program that changes the model repository of a running server from within its pod (docs/decisions/0030).

The operator adds it to the pod as an ephemeral container.
"""

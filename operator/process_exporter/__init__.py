"""The container that exposes what the processes of a server use.

docs/decisions/0063-processes-of-a-server.md
"""

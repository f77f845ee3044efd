"""Measures how long a server's requests take, from a sample of them that Triton traces.

It runs as a container beside Triton, in the operator's image.
"""

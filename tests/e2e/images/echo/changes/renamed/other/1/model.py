"""Fails to load."""


class TritonPythonModel:
    def initialize(self, args):
        raise RuntimeError("the labels are from Wednesday")

    def execute(self, requests):
        raise NotImplementedError

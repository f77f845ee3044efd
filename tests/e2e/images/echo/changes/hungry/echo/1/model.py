"""Allocates memory until it is killed."""


class TritonPythonModel:
    def initialize(self, args):
        self.taken = []
        while True:
            self.taken.append(b"x" * (16 << 20))

    def execute(self, requests):
        raise NotImplementedError

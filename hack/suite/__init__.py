"""Runs the parts of the tests, several at a time, those that failed once more, and reports what they did."""

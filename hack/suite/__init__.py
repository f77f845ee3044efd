"""Runs the parts of the tests, several at a time, and reports what they did."""

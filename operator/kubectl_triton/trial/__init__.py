"""Sends requests that are made from each model's configuration, or by the user, and reports what fails."""

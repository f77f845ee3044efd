"""`kubectl triton explain-alert`: from an alert to the numbers, a picture and the next command."""

"""The demo of the main use case: `make demo`."""

"""Handlers of the controller listener: one file per API key, each exporting HANDLER."""

"""What the controller's listener answers: one file per API key, each exporting HANDLER."""

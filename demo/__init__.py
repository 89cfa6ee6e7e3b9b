"""The main job, shown: `make demo`."""

"""Copies of partitions: fetched from those who lead them, and reported to the controller as in sync or not."""

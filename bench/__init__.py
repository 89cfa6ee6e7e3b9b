"""Measurements, as ratios against peers in the same run. Never part of the tests."""

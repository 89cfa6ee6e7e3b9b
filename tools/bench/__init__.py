"""Benchmarks: ratios against Apache Kafka and other peers, measured in the same run.

They are not part of the tests.
"""

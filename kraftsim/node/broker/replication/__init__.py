"""Replication: fetchers for followed partitions, and ISR changes of led ones."""

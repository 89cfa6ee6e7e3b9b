"""Quotas of clients: which one holds for whom, how a rate is measured, and for how long whoever is above it must be silent."""

"""A replica of the metadata log: its files, its connections to other replicas, its timers.

Source: KIP-595, KIP-630, KIP-853.
"""

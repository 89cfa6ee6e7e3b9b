"""The controller node: it replicates the metadata log and, while active, serves the requests of
brokers.

Source: KIP-500, KIP-631.
"""

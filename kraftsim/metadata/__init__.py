"""The cluster metadata: brokers, topics, configurations and features on the controllers, and the
brokers' image of it.

Source: KIP-500, KIP-631.
"""

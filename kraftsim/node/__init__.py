"""The asyncio layer around the pure cores: brokers, controllers, and clients.

It does the I/O: reads bytes, calls a core, writes bytes.
"""

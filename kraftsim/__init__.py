"""kraftsim re-enacts Kafka's producer identity and exactly-once machinery with small asyncio
processes that speak the real wire protocol.
"""

__version__ = "0.2.0"

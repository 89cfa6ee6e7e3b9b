"""ProducerIdsRecord (15): all producer ids below next_producer_id are allocated, the last block of
them to this broker.

next_producer_id is the first id of the *following* block: exclusive. 3.0 and 3.1 called the field
ProducerIdsEnd and described it as inclusive, but wrote the same value.
Source: KIP-730, KAFKA-15552 (what the mix-up did in a migration); ProducerIdsRecord.json.
"""

from protocol.schema import int32, int64, message


@message(key=15, kind="metadata", versions="0", flexible="0+")
class ProducerIdsRecord:
    """The broker of the request, with its broker epoch."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()

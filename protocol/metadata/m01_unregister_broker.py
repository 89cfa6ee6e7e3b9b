"""UnregisterBrokerRecord (1): a broker is forgotten, by an operator's wish.   Source: KIP-631, UnregisterBrokerRecord.json."""

from protocol.schema import int32, int64, message


@message(key=1, kind="metadata", versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """Names the life of the broker that ends, too."""

    broker_id: int = int32()
    broker_epoch: int = int64()

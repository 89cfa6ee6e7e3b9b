"""UnregisterBrokerRecord (1): a broker was unregistered by an operator.

Source: KIP-631, UnregisterBrokerRecord.json.
"""

from protocol.schema import int32, int64, message


@message(key=1, kind="metadata", versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """With the broker epoch that ends, too."""

    broker_id: int = int32()
    broker_epoch: int = int64()

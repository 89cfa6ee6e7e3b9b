"""UnfenceBrokerRecord (8): a broker is unfenced and may lead; since 3.3 replaced by record 17.

Source: KIP-631, UnfenceBrokerRecord.json.
"""

from protocol.schema import int32, int64, message


@message(key=8, kind="metadata", versions="0", flexible="0+")
class UnfenceBrokerRecord:
    """The broker and its broker epoch."""

    id: int = int32()
    epoch: int = int64()

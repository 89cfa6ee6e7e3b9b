"""FenceBrokerRecord (7): a broker is fenced and may not lead; since 3.3 replaced by record 17.

Source: KIP-631, FenceBrokerRecord.json.
"""

from protocol.schema import int32, int64, message


@message(key=7, kind="metadata", versions="0", flexible="0+")
class FenceBrokerRecord:
    """The broker and its broker epoch."""

    id: int = int32()
    epoch: int = int64()

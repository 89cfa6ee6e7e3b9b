"""FenceBrokerRecord (7): a broker may no longer lead; since 3.3 record 17 says so.   Source: KIP-631, FenceBrokerRecord.json."""

from protocol.schema import int32, int64, message


@message(key=7, kind="metadata", versions="0", flexible="0+")
class FenceBrokerRecord:
    """The broker and the life of it that is fenced."""

    id: int = int32()
    epoch: int = int64()

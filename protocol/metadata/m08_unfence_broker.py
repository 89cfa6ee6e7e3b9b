"""UnfenceBrokerRecord (8): a broker may lead again; since 3.3 record 17 says so.   Source: KIP-631, UnfenceBrokerRecord.json."""

from protocol.schema import int32, int64, message


@message(key=8, kind="metadata", versions="0", flexible="0+")
class UnfenceBrokerRecord:
    """The broker and the life of it that is let in."""

    id: int = int32()
    epoch: int = int64()

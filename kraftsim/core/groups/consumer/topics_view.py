"""What a group needs to know of topics: their ids, how many partitions they have, and whether anything has changed since it looked last."""

from collections.abc import Iterable
from typing import Final, Protocol

FNV_OFFSET: Final = 0xCBF29CE484222325
FNV_PRIME: Final = 0x100000001B3
INT64: Final = 1 << 64


class TopicsView(Protocol):
    """The topics of the cluster, as the broker knows them."""

    @property
    def version(self) -> int:
        """A number that changes whenever topics do."""
        ...

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return id and partition count of a topic; None if it is not there."""
        ...

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic; None if it is not there."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics, sorted."""
        ...


class NoTopics:
    """A cluster without topics."""

    version = 0

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Find nothing."""
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        """Find nothing."""
        return None

    def names(self) -> Iterable[str]:
        """There is none."""
        return ()


def hash_of_topics(names: Iterable[str], topics: TopicsView) -> int:
    """Return a signed number of 64 bits that changes with the ids and partition counts of the topics that are there; 0 if none is.

    Apache Kafka keeps another one (XXH3): a coordinator that comes after one of the other kind begins one rebalance for nothing.
    """
    found = [(name, topic) for name in sorted(names) if (topic := topics.find(name)) is not None]
    if not found:
        return 0
    text = "".join(f"{name}\0{topic_id.hex()}\0{count}\0" for name, (topic_id, count) in found)
    hashed = FNV_OFFSET
    for byte in text.encode():
        hashed = (hashed ^ byte) * FNV_PRIME % INT64
    return hashed - INT64 if hashed >= INT64 // 2 else hashed

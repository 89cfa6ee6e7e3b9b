"""The topic metadata that a group needs: ids, partition counts, and a version to detect changes."""

from collections.abc import Iterable
from typing import Final, Protocol

FNV_OFFSET: Final = 0xCBF29CE484222325
FNV_PRIME: Final = 0x100000001B3
INT64: Final = 1 << 64


class TopicsView(Protocol):
    """The topics of the cluster, in the broker's metadata."""

    @property
    def version(self) -> int:
        """A number that changes with every change of the topics."""
        ...

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return id and partition count of a topic; None if it does not exist."""
        ...

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic; None if it does not exist."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics, sorted."""
        ...


class NoTopics:
    """A cluster without topics."""

    version = 0

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return None."""
        return None

    def name_of(self, topic_id: bytes) -> str | None:
        """Return None."""
        return None

    def names(self) -> Iterable[str]:
        """Return no names."""
        return ()


def hash_of_topics(names: Iterable[str], topics: TopicsView) -> int:
    """Return a signed 64-bit hash of the ids and partition counts of the existing topics; 0 without
    any.

    Apache Kafka uses another hash (XXH3): a coordinator that takes over from one of the other
    implementation starts one needless rebalance.
    """
    found = [(name, topic) for name in sorted(names) if (topic := topics.find(name)) is not None]
    if not found:
        return 0
    text = "".join(f"{name}\0{topic_id.hex()}\0{count}\0" for name, (topic_id, count) in found)
    hashed = FNV_OFFSET
    for byte in text.encode():
        hashed = (hashed ^ byte) * FNV_PRIME % INT64
    return hashed - INT64 if hashed >= INT64 // 2 else hashed

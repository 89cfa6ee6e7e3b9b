"""The hash by which a group of 4.1 or later detects that its topics have changed: of each topic its
id, name, partitions and their racks.

A coordinator of the other implementation computes the same number, so a group that moves to it does
not rebalance.
Source: KIP-1101, org.apache.kafka.coordinator.group.Utils (computeTopicHash, computeGroupHash).
"""

from collections.abc import Iterable, Sequence
from struct import pack
from typing import Final

from kraftsim.core.xxh3 import xxh3_64
from kraftsim.groups.rules_consumer_group import TopicsView

FORMAT: Final = b"\0"
INT64: Final = 1 << 64


def hash_of_topic(topic_id: bytes, name: str, racks: Sequence[Iterable[str]]) -> int:
    """Return the signed 64-bit hash of a topic; `racks` has the known racks of the replicas of each
    partition, in any order.
    """
    length, text = _utf16(name)
    high, low = int.from_bytes(topic_id[:8]), int.from_bytes(topic_id[8:])
    parts = [FORMAT, pack("<QQ", high, low), text, pack("<ii", length, len(racks))]
    for number, each in enumerate(racks):
        parts.append(pack("<i", number))
        for rack in sorted(each, key=_in_java_order):
            length, text = _utf16(rack)
            parts += (pack("<i", length), text, pack("<i", length))
    return _signed(xxh3_64(b"".join(parts)))


def hash_of_topics(names: Iterable[str], topics: TopicsView) -> int:
    """Return the signed 64-bit hash of those of the topics that exist; 0 without any."""
    hashes = [hashed for name in sorted(names) if (hashed := topics.hash_of(name)) is not None]
    return _signed(xxh3_64(pack(f"<{len(hashes)}q", *hashes))) if hashes else 0


def _utf16(text: str) -> tuple[int, bytes]:
    """Return length and bytes in UTF-16 units, as Java has strings."""
    encoded = text.encode("utf-16-le")
    return len(encoded) // 2, encoded


def _in_java_order(text: str) -> bytes:
    return text.encode("utf-16-be")


def _signed(hashed: int) -> int:
    return hashed - INT64 if hashed >= INT64 // 2 else hashed

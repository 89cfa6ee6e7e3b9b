"""The hash of the topics of a group: of every length of bytes, and when it changes."""

from hashlib import sha256

import pytest

from kraftsim.core.xxh3 import xxh3_64
from kraftsim.groups.group_coordinator import KnownTopics
from kraftsim.groups.rules_topic_hashes import hash_of_topic, hash_of_topics
from kraftsim.metadata.rules_image import MetadataImage
from protocol.metadata.registrations import RegisterBrokerRecord
from protocol.metadata.topics import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.schema import Message

TOPIC_ID = bytes(range(16))
HASHES_BY_SIZE = {
    0: 0x2D06800538D394C2,
    1: 0xE12EF9D2EB86CEEB,
    3: 0xB7391E018153D37A,
    4: 0x43DE45B7450A6563,
    8: 0xBCB3564EA273195D,
    9: 0x388F1DAB6E174F79,
    16: 0x9A9A7C8AF11CB0D1,
    17: 0x6331A7347274566F,
    128: 0x4388A1A31A919C42,
    129: 0x619DC1115E4D15AD,
    240: 0x880604936179A23B,
    241: 0xF6ECCCEB68535F08,
    1024: 0xDF9DE2EBC1670AC5,
    1025: 0xF14FF968D7318F7F,
}
"""What hash4j 0.22.0 computes."""
HASHED_SIZES = 2600
ALL_HASHES = "ceba2083efc817654168e3fd7e4ecdda6709a2ba1c1d088f0af0691660c2311a"
"""The SHA-256 of what hash4j computes for every size below."""


def content(size: int) -> bytes:
    return bytes((place * place * 31 + place * 7 + size) & 255 for place in range(size))


@pytest.mark.parametrize("size", HASHES_BY_SIZE)
def test_bytes_of_a_size_have_the_hash_of_hash4j(size: int) -> None:
    assert xxh3_64(content(size)) == HASHES_BY_SIZE[size]


def test_bytes_of_every_size_have_the_hash_of_hash4j() -> None:
    hashes = b"".join(xxh3_64(content(size)).to_bytes(8) for size in range(HASHED_SIZES))
    assert sha256(hashes).hexdigest() == ALL_HASHES


class Image:
    """An image with broker 1 on rack a, broker 2 without a rack, and topic t."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.topics = KnownTopics(lambda: self.image)
        self.apply(RegisterBrokerRecord(broker_id=1, rack="a"))
        self.apply(RegisterBrokerRecord(broker_id=2, rack=None))
        self.create()

    def apply(self, record: Message) -> None:
        self.image.replay(record, self.image.highest_offset + 1)

    def create(self, topic_id: bytes = TOPIC_ID) -> None:
        self.apply(TopicRecord(name="t", topic_id=topic_id))
        self.put(0, [1, 2], topic_id)

    def put(self, number: int, replicas: list[int], topic_id: bytes = TOPIC_ID) -> None:
        self.apply(
            PartitionRecord(
                topic_id=topic_id,
                partition_id=number,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
            )
        )


def test_hash_covers_partitions_and_the_racks_of_registered_replicas() -> None:
    made = Image()
    assert made.topics.hash_of("t") == hash_of_topic(TOPIC_ID, "t", [["a"]])
    made.put(1, [2, 3])
    assert made.topics.hash_of("t") == hash_of_topic(TOPIC_ID, "t", [["a"], []])
    assert made.topics.hash_of("t") != hash_of_topic(TOPIC_ID, "t", [["a"], ["b"]])
    assert made.topics.hash_of("u") is None


def test_new_rack_changes_the_hash_with_the_next_change_of_the_topic() -> None:
    made = Image()
    assert made.topics.hash_of("t") == hash_of_topic(TOPIC_ID, "t", [["a"]])
    made.apply(RegisterBrokerRecord(broker_id=2, rack="b"))
    assert made.topics.hash_of("t") == hash_of_topic(TOPIC_ID, "t", [["a"]])
    made.apply(PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=0, leader=2))
    assert made.topics.hash_of("t") == hash_of_topic(TOPIC_ID, "t", [["b", "a"]])


def test_topic_created_again_has_another_hash() -> None:
    made = Image()
    former = made.topics.hash_of("t")
    made.apply(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert made.topics.hash_of("t") is None
    assert hash_of_topics(["t"], made.topics) == 0
    made.create(topic_id=bytes(16))
    assert made.topics.hash_of("t") not in (None, former)


def test_hash_of_a_group_does_not_depend_on_order_or_missing_topics() -> None:
    made = Image()
    made.apply(TopicRecord(name="u", topic_id=bytes(16)))
    both = hash_of_topics(["t", "u"], made.topics)
    assert hash_of_topics(["u", "missing", "t"], made.topics) == both
    assert len({both, hash_of_topics(["t"], made.topics), hash_of_topics(["u"], made.topics)}) == 3

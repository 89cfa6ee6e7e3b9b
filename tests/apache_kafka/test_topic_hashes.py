"""The hash of the topics of a group equals that of Apache Kafka's coordinator, for random topics on
brokers with and without racks, registered or not.

Source: KIP-1101, org.apache.kafka.coordinator.group.Utils.
"""

import random
import subprocess
from itertools import count
from pathlib import Path

import pytest

from kraftsim.core.xxh3 import xxh3_64
from kraftsim.groups.group_coordinator import KnownTopics
from kraftsim.groups.rules_topic_hashes import hash_of_topics
from kraftsim.metadata.rules_image import MetadataImage
from protocol.metadata.registrations import RegisterBrokerRecord
from protocol.metadata.topics import PartitionRecord, TopicRecord
from tests.apache_kafka.class_path import class_path, java

pytestmark = pytest.mark.interop
QUESTION_COUNT = 600
ANSWER_SECONDS = 120
RACKS = (None, "", "a", "rack-1", "rack-10", "Rack", "é", "\uffee", "\U0001f980", "z" * 300)


class DrawnCluster:
    """Up to six brokers with racks, and up to twelve topics on them and on unregistered ones."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self.content = draw.randbytes(draw.choice((seed % 300, draw.randrange(5000))))
        choice = draw.sample(RACKS, draw.randint(1, 4))
        self.racks = {number: draw.choice(choice) for number in range(draw.randint(1, 6))}
        self.topics = {
            "".join(draw.choices("abXY._-09", k=draw.choice((1, 3, 9, 249)))): (
                draw.randbytes(16),
                [
                    draw.sample(range(7), draw.randint(1, 4))
                    for _ in range(draw.randint(1, draw.choice((1, 4, 60))))
                ],
            )
            for _ in range(draw.randint(1, draw.choice((1, 2, 12))))
        }

    def question(self) -> str:
        """Return the cluster as TopicHashes reads it."""
        brokers = ",".join(
            f"{number}={'-' if rack is None else rack.encode().hex()}"
            for number, rack in self.racks.items()
        )
        topics = " ".join(
            f"{name}:{topic_id.hex()}:{'/'.join(','.join(map(str, row)) for row in partitions)}"
            for name, (topic_id, partitions) in self.topics.items()
        )
        return f"{self.content.hex()} {brokers} {topics}"

    def answer(self) -> str:
        """Return the hashes as TopicHashes writes them."""
        image, offsets = MetadataImage(), count()
        for number, rack in self.racks.items():
            image.replay(RegisterBrokerRecord(broker_id=number, rack=rack), next(offsets))
        for name, (topic_id, partitions) in self.topics.items():
            image.replay(TopicRecord(name=name, topic_id=topic_id), next(offsets))
            for number, row in enumerate(partitions):
                image.replay(
                    PartitionRecord(
                        topic_id=topic_id, partition_id=number, replicas=row, isr=row, leader=row[0]
                    ),
                    next(offsets),
                )
        topics = KnownTopics(lambda: image)
        hashed = int.from_bytes(xxh3_64(self.content).to_bytes(8), signed=True)
        hashes = [hashed, *map(topics.hash_of, self.topics)]
        return " ".join(map(str, [*hashes, hash_of_topics(self.topics, topics)]))


@pytest.mark.parametrize("release", ["4.1.2", "4.2.2", "4.4.0"])
def test_topics_have_the_hash_of_apache_kafka(release: str) -> None:
    clusters = [DrawnCluster(seed) for seed in range(QUESTION_COUNT)]
    theirs = subprocess.run(
        [
            java(),
            "-cp",
            ":".join(map(str, class_path(release))),
            str(Path(__file__).with_name("TopicHashes.java")),
        ],
        input="\n".join(each.question() for each in clusters) + "\n",
        capture_output=True,
        check=True,
        text=True,
        timeout=ANSWER_SECONDS,
    ).stdout.splitlines()
    assert len(theirs) == len(clusters)
    for cluster, line in zip(clusters, theirs, strict=True):
        assert cluster.answer() == line, cluster.question()

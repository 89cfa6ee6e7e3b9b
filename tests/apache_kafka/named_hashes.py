"""The hash of the topics of a group as the names of the topics, so that groups of two clusters can
be compared whose topics have different ids.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations

from kraftsim.conformance.peer import Peer
from kraftsim.groups.rules_consumer_group import NoTopics
from kraftsim.groups.rules_topic_hashes import hash_of_topic, hash_of_topics
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

METADATA_VERSION = 12


class HashedTopics(NoTopics):
    """Topics of a cluster whose brokers have no racks: the given ones, or all that are not
    internal.
    """

    def __init__(self, peer: Peer, names: Iterable[str] | None = None) -> None:
        rows = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        answer = peer.ask(MetadataRequest(topics=rows), METADATA_VERSION, MetadataResponse)
        self._hashes = {
            topic.name: hash_of_topic(topic.topic_id, topic.name, [()] * len(topic.partitions))
            for topic in answer.topics
            if topic.name is not None and not topic.is_internal
        }

    def hash_of(self, name: str) -> int | None:
        """Return the hash of a topic; None if it does not exist."""
        return self._hashes.get(name)

    def named(self, hashed: int) -> tuple[str, ...]:
        """Return the topics with this hash. Raises AssertionError if there are none."""
        for names in self._every_choice():
            if hash_of_topics(names, self) == hashed:
                return names
        raise AssertionError(f"{hashed} is no hash of some of {sorted(self._hashes)}")

    def _every_choice(self) -> Iterator[tuple[str, ...]]:
        for count in range(len(self._hashes) + 1):
            yield from combinations(sorted(self._hashes), count)

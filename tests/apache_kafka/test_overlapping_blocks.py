"""A block of producer ids that starts at the last id of the broker's present one (KAFKA-20031).

A broker cannot be asked for that: the controller decides. So a broker of Apache Kafka talks to a
controller of Apache Kafka through a proxy, which sets the start of its second block to the last id
of the first one. Up to 4.2 the broker takes the block and gives that id twice; since 4.3 it refuses
it, and retries.
Source: org.apache.kafka.coordinator.transaction.RPCProducerIdManager.
"""

from collections import Counter

import pytest

from kraftsim.conformance.target import Target
from kraftsim.releases.release import release
from kraftsim.releases.traits import DISJOINT_PRODUCER_ID_BLOCKS
from protocol.api_keys import ApiKey
from tests.apache_kafka.class_path import NEWEST_RELEASE
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.mixed import SMALL_JVM
from tests.apache_kafka.recording_proxy import RecordingProxy

BLOCK_SIZE = 1000
START = slice(11, 19)
"""Of the frame of an AllocateProducerIds response: correlation id, tags, throttle time, error."""


class OverlappingBlocks(RecordingProxy):
    """A proxy that changes the second AllocateProducerIds response."""

    def __init__(self) -> None:
        super().__init__((int(ApiKey.ALLOCATE_PRODUCER_IDS),))
        self._awaited: set[tuple[int, bytes]] = set()
        self._blocks = 0
        self._last_id = 0

    def on_request(self, connection: int, frame: bytes) -> None:
        """Note a request for a block, by its connection and correlation id."""
        if int.from_bytes(frame[:2], "big") == ApiKey.ALLOCATE_PRODUCER_IDS:
            self._awaited.add((connection, frame[4:8]))

    def changed(self, connection: int, frame: bytes) -> bytes:
        """Return a response as the broker gets it."""
        if (connection, frame[:4]) not in self._awaited:
            return frame
        self._blocks += 1
        if self._blocks == 1:
            self._last_id = int.from_bytes(frame[START], "big") + BLOCK_SIZE - 1
        if self._blocks != 2:
            return frame
        return frame[: START.start] + self._last_id.to_bytes(8, "big") + frame[START.stop :]


@pytest.mark.interop
@pytest.mark.parametrize("name", ["4.2.2", NEWEST_RELEASE])
def test_the_id_at_the_end_of_a_block_is_given_once_since_4_3(name: str) -> None:
    with (
        OverlappingBlocks() as proxy,
        ApacheKafka(name, {"process.roles": "controller"}, SMALL_JVM) as controller,
    ):
        proxy.target = controller.controller_port
        settings = {
            "process.roles": "broker",
            "node.id": "2",
            "controller.quorum.voters": f"1@127.0.0.1:{proxy.port}",
        }
        with ApacheKafka(name, settings, SMALL_JVM) as broker:
            target = Target(broker.bootstrap)
            given = Counter(target.producer_id()[0] for _ in range(BLOCK_SIZE + 10))
    twice = [producer_id for producer_id, count in given.items() if count > 1]
    first_id = min(given)
    is_disjoint = release(name.rpartition(".")[0]).has(DISJOINT_PRODUCER_ID_BLOCKS)
    assert twice == ([] if is_disjoint else [first_id + BLOCK_SIZE - 1])

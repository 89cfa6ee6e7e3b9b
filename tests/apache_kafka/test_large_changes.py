"""Changes of more partitions than fit into one batch: our controller splits or refuses them exactly
where Apache Kafka's does.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.k64_unregister_broker import UnregisterBrokerRequest
from protocol.schema import Message
from tests.apache_kafka.controller_requests import CAUGHT_UP, CLUSTER_ID, Result, Session
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.test_partition_rules import QUIET, Asked, our_controller, session_with

pytestmark = pytest.mark.interop
LEADER, FOLLOWER = 11, 12
PARTITIONS = 6000
TOPICS = ("one", "two")
RECORDS_MAX = 10_000


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Session]]:
    """(Apache Kafka's controller, ours): two brokers, and more partitions of both than a batch can
    name.
    """
    apache = ApacheKafka(settings={"process.roles": "controller", **QUIET})
    directory: Path = tmp_path_factory.mktemp("large")
    with apache, our_controller(directory) as ours:
        both = session_with(apache.controller), session_with(ours)
        for asked in (
            registered(LEADER),
            registered(FOLLOWER),
            beats(LEADER),
            beats(FOLLOWER),
            *map(created, TOPICS),
        ):
            agreed(both, asked)
        yield both
        for session in both:
            session.close()


def agreed(both: tuple[Session, Session], asked: Asked) -> Result:
    """Send a request to both, and return their common response."""
    there, here = (session.send(asked) for session in both)
    assert (here.answer, here.batches) == (there.answer, there.batches)
    assert here.records == there.records
    return here


def registered(broker_id: int) -> Asked:
    """Register a broker."""
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=bytes([broker_id] * 16),
        listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=9, security_protocol=0)],
        features=[
            Feature(name="metadata.version", min_supported_version=1, max_supported_version=21)
        ],
        log_dirs=[bytes([200, broker_id] * 8)],
    )
    return lambda session: (request, 2)


def beats(broker_id: int, *, want_fence: bool = False) -> Asked:
    """Send a heartbeat of a broker that has caught up."""

    def asked(session: Session) -> tuple[Message, int]:
        epoch = session.broker_epoch(broker_id)
        return BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch,
            current_metadata_offset=CAUGHT_UP,
            want_fence=want_fence,
        ), 1

    return asked


def created(name: str) -> Asked:
    """Create a topic whose partitions all have the same leader."""
    rows = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=[LEADER, FOLLOWER])
        for index in range(PARTITIONS)
    ]
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=rows)
    return lambda session: (CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)


def test_fencing_a_broker_is_written_in_several_record_batches(
    sessions: tuple[Session, Session],
) -> None:
    """MAX_RECORDS_PER_BATCH: the partitions first, 10,000 at a time, and then the broker."""
    result = agreed(sessions, beats(LEADER, want_fence=True))
    assert result.batches == (RECORDS_MAX, PARTITIONS * len(TOPICS) + 1 - RECORDS_MAX)


def test_a_broker_with_too_many_partitions_cannot_be_unregistered(
    sessions: tuple[Session, Session],
) -> None:
    """MAX_RECORDS_PER_USER_OP: a request is applied atomically, or not at all."""
    result = agreed(sessions, lambda session: (UnregisterBrokerRequest(broker_id=FOLLOWER), 0))
    assert (result.records, result.batches) == ((), ())
    assert f'"errorCode": {int(ErrorCode.POLICY_VIOLATION)}' in result.answer

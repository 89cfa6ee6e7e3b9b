"""unclean.leader.election.enable: the topic override, the dynamic cluster default, and the static
config of the controller.

Source: Apache Kafka 3.9.1 itself; ConfigurationControlManager.uncleanLeaderElectionEnabledForTopic.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.k44_incremental_alter_configs import (
    DELETE,
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.k56_alter_partition import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)
from protocol.schema import Message
from tests.apache_kafka.controller_requests import Session
from tests.apache_kafka.harness import ApacheKafka
from tests.apache_kafka.test_large_changes import FOLLOWER, LEADER, agreed, beats, registered
from tests.apache_kafka.test_partition_rules import QUIET, Asked, our_controller, session_with

pytestmark = pytest.mark.interop
KEY = "unclean.leader.election.enable"
OWN_VALUES = {
    "says-nothing": None,
    "forbids": "false",
    "allows": "TRUE",
    "allows-with-a-space": " true ",
}
BROKERS, NO_BROKER = 4, -1


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Session, Session]]:
    """(Apache Kafka's controller, ours): a topic for each value, whose leader is the only in-sync
    replica.
    """
    apache = ApacheKafka(settings={"process.roles": "controller", **QUIET})
    directory: Path = tmp_path_factory.mktemp("unclean")
    with apache, our_controller(directory) as ours:
        both = session_with(apache.controller), session_with(ours)
        for asked in (
            registered(LEADER),
            registered(FOLLOWER),
            beats(LEADER),
            beats(FOLLOWER),
            *map(created, OWN_VALUES),
            *map(shrunk, OWN_VALUES),
        ):
            agreed(both, asked)
        yield both
        for session in both:
            session.close()


def created(name: str) -> Asked:
    """Create a topic of one partition."""
    value = OWN_VALUES[name]
    configs = [] if value is None else [CreatableTopicConfig(name=KEY, value=value)]
    rows = [CreatableReplicaAssignment(partition_index=0, broker_ids=[LEADER, FOLLOWER])]
    topic = CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=rows, configs=configs
    )
    return lambda session: (CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)


def shrunk(name: str) -> Asked:
    """Let the leader remove the follower from the ISR."""

    def asked(session: Session) -> tuple[Message, int]:
        partition = session.partitions()[name, 0]
        epoch = session.broker_epoch(LEADER)
        row = AlterPartitionData(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=LEADER, broker_epoch=epoch)],
        )
        topic = AlterPartitionTopic(topic_id=session.topic_id(name), partitions=[row])
        return AlterPartitionRequest(broker_id=LEADER, broker_epoch=epoch, topics=[topic]), 3

    return asked


def set_for_all(value: str | None) -> Asked:
    """Set the dynamic cluster default, or delete it."""
    operation = DELETE if value is None else SET
    row = AlterableConfig(name=KEY, config_operation=operation, value=value)
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=BROKERS, resource_name="", configs=[row])]
    )
    return lambda session: (request, 1)


def leaders(both: tuple[Session, Session]) -> dict[str, int]:
    """Return the leaders of the topics, which both must report the same."""
    there, here = (
        {name: partition.leader for (name, _), partition in session.partitions().items()}
        for session in both
    )
    assert here == there
    return here


def test_unclean_leader_election_configs_at_every_level(sessions: tuple[Session, Session]) -> None:
    """The in-sync replica goes down and the other one up; first without a cluster default, then
    with an invalid one, then with one.
    """
    allowed = []
    for value in (None, " true ", "true"):
        result = agreed(sessions, set_for_all(value))
        assert f'"errorCode": {int(ErrorCode.NONE)}' in result.answer
        for asked in (
            beats(FOLLOWER, want_fence=True),
            beats(LEADER, want_fence=True),
            beats(FOLLOWER),
        ):
            agreed(sessions, asked)
        allowed.append(
            sorted(name for name, leader in leaders(sessions).items() if leader == FOLLOWER)
        )
        for asked in (beats(FOLLOWER, want_fence=True), beats(LEADER)):
            agreed(sessions, asked)
    assert allowed == [["allows"], ["allows"], ["allows", "says-nothing"]]

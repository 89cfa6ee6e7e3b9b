"""ControlledShutdown (7), AlterPartition (56) and AllocateProducerIds (67) sent to a broker that is
the controller.

A broker's epoch is not visible to clients. It is found by trial: a request with an earlier broker
epoch is rejected with another error than a request of a deposed controller, and neither changes
anything.
Source: KIP-380, KIP-497, KIP-730; kafka.controller.KafkaController (doControlledShutdown,
tryProcessAlterPartition, processAllocateProducerIds); verified against Apache Kafka 3.9.1.
"""

import itertools
from dataclasses import dataclass

from kraftsim.conformance.expect import Inapplicable, expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.k06_update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from protocol.messages.k07_controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
)
from protocol.messages.k56_alter_partition import (
    AlterPartitionData,
    AlterPartitionDataResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from protocol.messages.k67_allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

REQUIREMENTS = Requirements("zookeeper", 3, "Broker requests to the controller")
UNKNOWN_ID = -1
NO_EPOCH = -1
UNKNOWN_BROKER = 4711
HIGHEST_EPOCH = 2**62
STALE_CONTROLLER = 0
BLOCK_SIZE = 1000
EPOCHS_SINCE, IDS_SINCE, BROKER_EPOCHS_SINCE = 2, 2, 3
"""Versions of ControlledShutdown with an epoch, of AlterPartition with topic ids, and of replicas
with epochs.
"""


@dataclass(frozen=True, slots=True)
class ControllerUnderTest:
    """The checked broker, which is the controller: its id, and its broker epoch."""

    broker_id: int
    epoch: int


def _controller(target: Target) -> ControllerUnderTest:
    """Find the controller's id and epoch.

    Raises Inapplicable unless the checked broker is the controller in ZooKeeper mode.
    """
    if ApiKey.DESCRIBE_QUORUM in target.ranges():
        raise Inapplicable("the metadata of this cluster is in a quorum of controllers")
    with target.peer() as peer:
        answer = peer.ask(
            MetadataRequest(topics=[]), target.newest(ApiKey.METADATA), MetadataResponse
        )
        if [broker.node_id for broker in answer.brokers] != [answer.controller_id]:
            raise Inapplicable("the broker that is asked may be another one than the controller")
        low, high = 0, HIGHEST_EPOCH
        while low < high:
            middle = (low + high) // 2
            asked = UpdateMetadataRequest(
                controller_id=UNKNOWN_ID, controller_epoch=STALE_CONTROLLER, broker_epoch=middle
            )
            error = peer.ask(
                asked, target.newest(ApiKey.UPDATE_METADATA), UpdateMetadataResponse
            ).error_code
            expect(
                error in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_CONTROLLER_EPOCH),
                f"an epoch is asked for, and the answer is {error}",
            )
            low, high = (
                (middle + 1, high) if error == ErrorCode.STALE_BROKER_EPOCH else (low, middle)
            )
    return ControllerUnderTest(answer.controller_id, low)


def _shut_down(
    target: Target, version: int, broker_id: int, epoch: int = NO_EPOCH
) -> ControlledShutdownResponse:
    with target.peer() as peer:
        return peer.ask(
            ControlledShutdownRequest(broker_id=broker_id, broker_epoch=epoch),
            version,
            ControlledShutdownResponse,
        )


@REQUIREMENTS.that(
    1,
    "ControlledShutdown of an unregistered broker returns BROKER_NOT_AVAILABLE, or "
    "UNKNOWN_SERVER_ERROR with an epoch",
    source="KafkaController.doControlledShutdown",
)
def unknown_broker_stops(target: Target) -> None:
    _controller(target)
    for version in target.versions(ApiKey.CONTROLLED_SHUTDOWN, since=1):
        answer = _shut_down(target, version, UNKNOWN_BROKER)
        expect_error(
            answer.error_code, ErrorCode.BROKER_NOT_AVAILABLE, f"version {version} without an epoch"
        )
        if version >= EPOCHS_SINCE:
            named = _shut_down(target, version, UNKNOWN_BROKER, 1)
            expect_error(
                named.error_code, ErrorCode.UNKNOWN_SERVER_ERROR, f"version {version} with an epoch"
            )


@REQUIREMENTS.that(
    2,
    "ControlledShutdown with an earlier broker epoch is rejected with STALE_BROKER_EPOCH",
    source="KIP-380; KafkaController.doControlledShutdown",
)
def shutdown_of_earlier_epoch(target: Target) -> None:
    controller = _controller(target)
    for version in target.versions(ApiKey.CONTROLLED_SHUTDOWN, since=EPOCHS_SINCE):
        for epoch in (0, controller.epoch - 1):
            answer = _shut_down(target, version, controller.broker_id, epoch)
            expect_error(
                answer.error_code,
                ErrorCode.STALE_BROKER_EPOCH,
                f"version {version}, epoch {epoch} of {controller.epoch}",
            )
            expect_equal(answer.remaining_partitions, [], "partitions in an error response")


def _allocate(target: Target, broker_id: int, epoch: int) -> AllocateProducerIdsResponse:
    with target.peer() as peer:
        asked = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=epoch)
        return peer.ask(
            asked, target.newest(ApiKey.ALLOCATE_PRODUCER_IDS), AllocateProducerIdsResponse
        )


@REQUIREMENTS.that(
    3,
    "a broker gets blocks of a thousand ids, none of which is allocated again",
    source="KIP-730",
    since="3.0",
)
def blocks(target: Target) -> None:
    controller = _controller(target)
    answers = [_allocate(target, controller.broker_id, controller.epoch) for _ in range(4)]
    expect_equal(
        [(answer.error_code, answer.producer_id_len) for answer in answers],
        [(0, BLOCK_SIZE)] * 4,
        "error codes, and ids in a block",
    )
    starts = [answer.producer_id_start for answer in answers]
    expect(
        all(after >= before + BLOCK_SIZE for before, after in itertools.pairwise(starts)),
        f"blocks that begin at {starts}",
    )
    handed_out, _ = target.producer_id()
    expect(
        not any(start <= handed_out < start + BLOCK_SIZE for start in starts),
        f"{handed_out} is in an allocated block",
    )


@REQUIREMENTS.that(
    4,
    "an unregistered broker gets no ids: BROKER_ID_NOT_REGISTERED",
    source="KafkaController.processAllocateProducerIds",
    since="3.0",
)
def unknown_broker_asks(target: Target) -> None:
    _controller(target)
    answer = _allocate(target, UNKNOWN_BROKER, 1)
    expect_error(
        answer.error_code,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "a request of a broker that does not exist",
    )
    expect_equal(answer.producer_id_len, 0, "ids in an error response")


@REQUIREMENTS.that(
    5,
    "a request with another broker epoch, lower or higher, gets no ids: STALE_BROKER_EPOCH",
    source="KIP-730; KIP-380",
    since="3.0",
)
def ids_for_other_epoch(target: Target) -> None:
    controller = _controller(target)
    for epoch in (NO_EPOCH, controller.epoch - 1, controller.epoch + 1):
        answer = _allocate(target, controller.broker_id, epoch)
        expect_error(
            answer.error_code,
            ErrorCode.STALE_BROKER_EPOCH,
            f"a request with epoch {epoch} of {controller.epoch}",
        )
        expect_equal(answer.producer_id_len, 0, "ids in an error response")


class _Partition:
    """A partition of one replica, and the requests for it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.controller = _controller(target)
        self.topic: TargetTopic = target.topic()
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=self.topic.name)], allow_auto_topic_creation=False
        )
        with target.peer() as peer:
            answer = peer.ask(asked, target.newest(ApiKey.METADATA), MetadataResponse)
        self.leader_epoch = answer.topics[0].partitions[0].leader_epoch

    def ask(
        self,
        version: int,
        *,
        isr: tuple[int, ...] | None = None,
        leader_epoch: int | None = None,
        partition_epoch: int = 0,
        broker_epoch: int | None = None,
        partition: int = 0,
        topic_id: bytes | None = None,
    ) -> AlterPartitionResponse:
        """Send AlterPartition with an ISR; fields that are not given have their current value."""
        replicas = list(isr if isr is not None else (self.controller.broker_id,))
        row = AlterPartitionData(
            partition_index=partition,
            leader_epoch=self.leader_epoch if leader_epoch is None else leader_epoch,
            new_isr=replicas if version < BROKER_EPOCHS_SINCE else [],
            new_isr_with_epochs=[BrokerState(broker_id=each) for each in replicas]
            if version >= BROKER_EPOCHS_SINCE
            else [],
            partition_epoch=partition_epoch,
        )
        topic = AlterPartitionTopic(
            topic_name=self.topic.name,
            topic_id=self.topic.topic_id if topic_id is None else topic_id,
            partitions=[row],
        )
        epoch = self.controller.epoch if broker_epoch is None else broker_epoch
        with self.target.peer() as peer:
            return peer.ask(
                AlterPartitionRequest(
                    broker_id=self.controller.broker_id, broker_epoch=epoch, topics=[topic]
                ),
                version,
                AlterPartitionResponse,
            )

    def result(self, answer: AlterPartitionResponse, what: str) -> AlterPartitionDataResult:
        """Return the row of the partition in the response."""
        expect_error(answer.error_code, ErrorCode.NONE, f"{what}: the whole request")
        return answer.topics[0].partitions[0]


@REQUIREMENTS.that(
    6,
    "AlterPartition with another broker epoch, lower or higher, is rejected with "
    "STALE_BROKER_EPOCH",
    source="KIP-497; KIP-380",
    since="2.8",
)
def alter_with_other_epoch(target: Target) -> None:
    partition = _Partition(target)
    epoch = partition.controller.epoch
    for version in target.versions(ApiKey.ALTER_PARTITION):
        for wrong in (NO_EPOCH, epoch - 1, epoch + 1):
            answer = partition.ask(version, broker_epoch=wrong)
            expect_error(
                answer.error_code,
                ErrorCode.STALE_BROKER_EPOCH,
                f"version {version}, epoch {wrong} of {epoch}",
            )


@REQUIREMENTS.that(
    7,
    "a request for the current ISR returns the current partition state, with any partition epoch",
    source="KIP-497; tryProcessAlterPartition",
    since="2.8",
)
def as_it_is(target: Target) -> None:
    partition = _Partition(target)
    for version in target.versions(ApiKey.ALTER_PARTITION):
        found = partition.result(partition.ask(version), f"version {version}")
        expect_error(found.error_code, ErrorCode.NONE, f"version {version}")
        own = (
            partition.controller.broker_id,
            partition.leader_epoch,
            [partition.controller.broker_id],
        )
        expect_equal(
            (found.leader_id, found.leader_epoch, found.isr),
            own,
            f"version {version}: leader, epoch and replicas in sync",
        )


@REQUIREMENTS.that(
    8,
    "a lower leader epoch returns FENCED_LEADER_EPOCH; a higher one, from another controller, "
    "NOT_CONTROLLER",
    source="KIP-497; tryProcessAlterPartition",
    since="2.8",
)
def other_leader_epochs(target: Target) -> None:
    partition = _Partition(target)
    for version in target.versions(ApiKey.ALTER_PARTITION):
        earlier = partition.result(
            partition.ask(version, leader_epoch=partition.leader_epoch - 1),
            f"version {version}, an earlier epoch",
        )
        expect_error(
            earlier.error_code,
            ErrorCode.FENCED_LEADER_EPOCH,
            f"version {version}, an earlier leader epoch",
        )
        later = partition.result(
            partition.ask(version, leader_epoch=partition.leader_epoch + 1),
            f"version {version}, a later epoch",
        )
        expect_error(
            later.error_code, ErrorCode.NOT_CONTROLLER, f"version {version}, a later leader epoch"
        )
        ahead = partition.result(
            partition.ask(version, partition_epoch=1000),
            f"version {version}, a later partition epoch",
        )
        expect_error(
            ahead.error_code,
            ErrorCode.NOT_CONTROLLER,
            f"version {version}, a later partition epoch",
        )


@REQUIREMENTS.that(
    9,
    "an unregistered replica cannot be in sync: INELIGIBLE_REPLICA, before version 2 "
    "OPERATION_NOT_ATTEMPTED",
    source="KIP-497; KIP-841; tryProcessAlterPartition",
    since="3.0",
)
def ineligible(target: Target) -> None:
    partition = _Partition(target)
    for version in target.versions(ApiKey.ALTER_PARTITION):
        now = partition.result(partition.ask(version), f"version {version}").partition_epoch
        asked = partition.ask(
            version, isr=(partition.controller.broker_id, UNKNOWN_BROKER), partition_epoch=now
        )
        wanted = (
            ErrorCode.INELIGIBLE_REPLICA
            if version >= IDS_SINCE
            else ErrorCode.OPERATION_NOT_ATTEMPTED
        )
        expect_error(
            partition.result(asked, f"version {version}").error_code,
            wanted,
            f"version {version}, a replica that does not exist",
        )


@REQUIREMENTS.that(
    10,
    "an unknown partition returns UNKNOWN_TOPIC_OR_PARTITION, or by topic id UNKNOWN_TOPIC_ID",
    source="KIP-841; getTopicName",
    since="2.8",
)
def unknown_partition(target: Target) -> None:
    partition = _Partition(target)
    for version in target.versions(ApiKey.ALTER_PARTITION):
        missing = partition.result(partition.ask(version, partition=77), f"version {version}")
        expect_error(
            missing.error_code,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"version {version}, a partition that does not exist",
        )
        if version >= IDS_SINCE:
            unknown = partition.result(
                partition.ask(version, topic_id=b"\x07" * 16), f"version {version}"
            )
            expect_error(
                unknown.error_code,
                ErrorCode.UNKNOWN_TOPIC_ID,
                f"version {version}, an id that no topic has",
            )

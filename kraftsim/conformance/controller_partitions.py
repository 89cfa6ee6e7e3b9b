"""AlterPartition (56) and AssignReplicasToDirs (73): what brokers send to the controller about
their partitions.

An emulated broker is unfenced and leads a topic of its own.
Source: KIP-497, KIP-841, KIP-858, KIP-903; ReplicationControlManager.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kraftsim.conformance.emulated_broker import (
    CAUGHT_UP,
    ThrowAwayBroker,
    throw_away_broker,
    uuid_of,
)
from kraftsim.conformance.expect import Unmet, error_name, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from protocol.messages.k56_alter_partition import (
    RECOVERING,
    AlterPartitionData,
    AlterPartitionDataResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionTopic,
    BrokerState,
)
from protocol.messages.k73_assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

REQUIREMENTS = Requirements("controller", 7, "Partitions of brokers")
VALIDATE = "ReplicationControlManager.validateAlterPartitionData"
ASSIGN = "ReplicationControlManager.handleAssignReplicasToDirs"
RECOVERY_SINCE, IDS_SINCE, EPOCHS_SINCE = 1, 2, 3
IDS_IN_CREATE_TOPICS = 7
NAMES_OF_DELETE_TOPICS = 5
TIMEOUT_MS = 15_000
DIRECTORY_NUMBER = 1000
UNKNOWN_ID = b"nobody has it..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Led:
    """A topic with one partition, led by an emulated broker; the epochs are those after the broker
    was unfenced again once.
    """

    target: Target
    broker: ThrowAwayBroker
    name: str
    topic_id: bytes
    leader_epoch: int
    partition_epoch: int

    def alter(
        self,
        version: int,
        topic_id: bytes | None = None,
        name: str = "",
        partition: int = 0,
        **changes: object,
    ) -> AlterPartitionDataResult:
        """Send AlterPartition with the current ISR and the given changes, and return the one row of
        the response.
        """
        row = AlterPartitionData(
            partition_index=partition,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
        )
        isr = changes.pop("isr", [self.broker.broker_id])
        assert isinstance(isr, list)
        if version >= EPOCHS_SINCE:
            row.new_isr_with_epochs = [
                BrokerState(broker_id=member, broker_epoch=self._epoch_of(member)) for member in isr
            ]
        else:
            row.new_isr = isr
        for field, value in changes.items():
            setattr(row, field, value)
        topic = AlterPartitionTopic(partitions=[row])
        if version >= IDS_SINCE:
            topic.topic_id = topic_id or self.topic_id
        else:
            topic.topic_name = name or self.name
        answer = ask_to_alter(self.target, version, self.broker, topic)
        expect_error(answer.error_code, ErrorCode.NONE, f"version {version}: the top-level error")
        return answer.topics[0].partitions[0]

    def refused(
        self, error: ErrorCode, what: str, since: int = 0, before: int = 99, **changes: object
    ) -> None:
        """A change is rejected in some versions, and the row contains nothing else."""
        for version in self.target.versions(
            ApiKey.ALTER_PARTITION, since=since, address=self.target.controller_address()
        ):
            if version < before:
                # arg-type: keyword arguments of several types
                row = self.alter(version, **changes)  # type: ignore[arg-type]
                expect_error(row.error_code, error, f"version {version}, {what}")
                returned = (row.leader_id, row.leader_epoch, row.isr, row.partition_epoch)
                expect_equal(
                    returned,
                    (0, 0, [], 0),
                    f"version {version}, {what}: leader, its epoch, ISR, partition epoch",
                )

    def _epoch_of(self, member: int) -> int:
        return self.broker.epoch if member == self.broker.broker_id else -1


def ask_to_alter(
    target: Target,
    version: int,
    broker: ThrowAwayBroker,
    *topics: AlterPartitionTopic,
    epoch: int | None = None,
) -> AlterPartitionResponse:
    """Send AlterPartition as a broker."""
    asked = AlterPartitionRequest(
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch if epoch is None else epoch,
        topics=list(topics),
    )
    with target.controller_peer() as peer:
        return peer.ask(asked, version, AlterPartitionResponse)


def ask_to_assign(
    target: Target, broker: ThrowAwayBroker, epoch: int, *directories: AssignedDirectory
) -> AssignReplicasToDirsResponse:
    """Send AssignReplicasToDirs as a broker."""
    asked = AssignReplicasToDirsRequest(
        broker_id=broker.broker_id, broker_epoch=epoch, directories=list(directories)
    )
    with target.controller_peer() as peer:
        return peer.ask(asked, 0, AssignReplicasToDirsResponse)


@contextmanager
def _led(target: Target) -> Iterator[Led]:
    """Yield a topic that an emulated broker leads, in leader epoch 2: the broker was fenced once.

    Both are removed at the end.
    """
    with throw_away_broker(target) as broker:
        broker.registered()
        broker.heartbeat(offset=CAUGHT_UP, want_fence=False)
        name = target.fresh_name()
        row = CreatableReplicaAssignment(partition_index=0, broker_ids=[broker.broker_id])
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=[row]
        )
        with target.controller_peer() as peer:
            answer = peer.ask(
                CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS),
                IDS_IN_CREATE_TOPICS,
                CreateTopicsResponse,
            )
            made = answer.topics[0]
            if made.error_code != ErrorCode.NONE:
                raise Unmet(
                    f"a topic could not be made on the controller: {error_name(made.error_code)} "
                    f"{made.error_message}"
                )
            broker.heartbeat(offset=CAUGHT_UP, want_fence=True)
            broker.heartbeat(offset=CAUGHT_UP, want_fence=False)
            try:
                yield Led(
                    target=target,
                    broker=broker,
                    name=name,
                    topic_id=bytes(made.topic_id),
                    leader_epoch=2,
                    partition_epoch=2,
                )
            finally:
                peer.ask(
                    DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS),
                    NAMES_OF_DELETE_TOPICS,
                    DeleteTopicsResponse,
                )


@REQUIREMENTS.that(
    1,
    "a request of a broker that is not registered with its epoch fails as a whole with "
    "STALE_BROKER_EPOCH",
    source="KIP-497; checkBrokerEpoch",
)
def stale_broker_epoch(target: Target) -> None:
    with throw_away_broker(target) as broker:
        epoch = broker.registered()
        for version in target.versions(ApiKey.ALTER_PARTITION, address=target.controller_address()):
            topic = AlterPartitionTopic(partitions=[AlterPartitionData(partition_index=0)])
            for wrong in (epoch - 1, epoch + 1, -1):
                answer = ask_to_alter(target, version, broker, topic, epoch=wrong)
                expect_error(
                    answer.error_code,
                    ErrorCode.STALE_BROKER_EPOCH,
                    f"version {version}, epoch {wrong - epoch:+}",
                )
                expect_equal(answer.topics, [], f"version {version}: topics of the answer")


@REQUIREMENTS.that(
    2,
    "a leader that sends the current ISR gets the current partition state, and nothing changes",
    source="KIP-497",
)
def as_it_is(target: Target) -> None:
    with _led(target) as led:
        for version in target.versions(ApiKey.ALTER_PARTITION, address=target.controller_address()):
            row = led.alter(version)
            expect_error(row.error_code, ErrorCode.NONE, f"version {version}")
            expected = (
                led.broker.broker_id,
                led.leader_epoch,
                [led.broker.broker_id],
                led.partition_epoch,
            )
            returned = (row.leader_id, row.leader_epoch, row.isr, row.partition_epoch)
            expect_equal(
                returned, expected, f"version {version}: leader, its epoch, ISR, partition epoch"
            )


@REQUIREMENTS.that(
    3,
    "an unknown topic id returns UNKNOWN_TOPIC_ID, an unknown topic name or partition "
    "UNKNOWN_TOPIC_OR_PARTITION",
    source=VALIDATE,
)
def not_there(target: Target) -> None:
    with _led(target) as led:
        led.refused(
            ErrorCode.UNKNOWN_TOPIC_ID, "an unknown id", since=IDS_SINCE, topic_id=UNKNOWN_ID
        )
        led.refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "an unknown name",
            before=IDS_SINCE,
            name=target.fresh_name(),
        )
        led.refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "partition 7", partition=7)


@REQUIREMENTS.that(
    4,
    "epochs above the controller's return NOT_CONTROLLER, an old leader epoch "
    "FENCED_LEADER_EPOCH, an old partition epoch INVALID_UPDATE_VERSION",
    source=VALIDATE,
)
def epochs(target: Target) -> None:
    with _led(target) as led:
        led.refused(
            ErrorCode.NOT_CONTROLLER, "a leader epoch ahead", leader_epoch=led.leader_epoch + 1
        )
        led.refused(
            ErrorCode.NOT_CONTROLLER,
            "a partition epoch ahead",
            partition_epoch=led.partition_epoch + 1,
        )
        led.refused(
            ErrorCode.NOT_CONTROLLER,
            "one ahead, one behind",
            leader_epoch=led.leader_epoch - 1,
            partition_epoch=led.partition_epoch + 1,
        )
        led.refused(
            ErrorCode.FENCED_LEADER_EPOCH,
            "a leader epoch behind",
            leader_epoch=led.leader_epoch - 1,
        )
        led.refused(
            ErrorCode.FENCED_LEADER_EPOCH,
            "both behind",
            leader_epoch=led.leader_epoch - 1,
            partition_epoch=led.partition_epoch - 1,
        )
        led.refused(
            ErrorCode.INVALID_UPDATE_VERSION,
            "a partition epoch behind",
            partition_epoch=led.partition_epoch - 1,
        )


@REQUIREMENTS.that(
    5,
    "an ISR without the leader, with brokers that are no replicas, or with duplicates is "
    "rejected with INVALID_REQUEST",
    source=VALIDATE,
)
def impossible_isr(target: Target) -> None:
    with _led(target) as led:
        own = led.broker.broker_id
        for what, isr in (
            ("no ISR", []),
            ("a stranger", [own, own + 1]),
            ("the leader twice", [own, own]),
            ("-1", [own, -1]),
        ):
            led.refused(ErrorCode.INVALID_REQUEST, what, isr=isr)


@REQUIREMENTS.that(
    6,
    "a recovered leader cannot return to the recovering state: INVALID_REQUEST",
    source=f"KIP-704; {VALIDATE}",
)
def no_second_recovery(target: Target) -> None:
    with _led(target) as led:
        led.refused(
            ErrorCode.INVALID_REQUEST,
            "RECOVERING",
            since=RECOVERY_SINCE,
            leader_recovery_state=RECOVERING,
        )


@REQUIREMENTS.that(
    7,
    "an ISR member with another broker epoch is rejected with INELIGIBLE_REPLICA",
    source=f"KIP-903; {VALIDATE}",
)
def other_broker_epoch(target: Target) -> None:
    with _led(target) as led:
        own = led.broker.broker_id
        stale = [BrokerState(broker_id=own, broker_epoch=led.broker.epoch - 1)]
        led.refused(
            ErrorCode.INELIGIBLE_REPLICA,
            "another broker epoch",
            since=EPOCHS_SINCE,
            new_isr_with_epochs=stale,
        )
        unchecked = [BrokerState(broker_id=own, broker_epoch=-1)]
        for version in target.versions(
            ApiKey.ALTER_PARTITION, since=EPOCHS_SINCE, address=target.controller_address()
        ):
            row = led.alter(version, new_isr_with_epochs=unchecked)
            expect_error(
                row.error_code,
                ErrorCode.NONE,
                f"version {version}, an epoch that is not to be checked",
            )


@REQUIREMENTS.that(
    8,
    "AlterPartition of a broker that is not the leader is rejected with INVALID_REQUEST",
    source=VALIDATE,
)
def not_the_leader(target: Target) -> None:
    with _led(target) as led, throw_away_broker(target) as other:
        other.registered()
        for version in target.versions(
            ApiKey.ALTER_PARTITION, since=IDS_SINCE, address=target.controller_address()
        ):
            row = AlterPartitionData(
                partition_index=0,
                leader_epoch=led.leader_epoch,
                partition_epoch=led.partition_epoch,
            )
            answer = ask_to_alter(
                target, version, other, AlterPartitionTopic(topic_id=led.topic_id, partitions=[row])
            )
            expect_error(
                answer.topics[0].partitions[0].error_code,
                ErrorCode.INVALID_REQUEST,
                f"version {version}",
            )


@REQUIREMENTS.that(
    9,
    "directory assignments are accepted or rejected replica by replica",
    source=f"KIP-858; {ASSIGN}",
    since="3.7",
)
def assigned(target: Target) -> None:
    with _led(target) as led, throw_away_broker(target) as other:
        other.registered()
        directory = uuid_of(led.broker.broker_id, DIRECTORY_NUMBER)
        rows = [
            AssignedTopic(
                topic_id=led.topic_id,
                partitions=[
                    AssignedPartition(partition_index=0),
                    AssignedPartition(partition_index=7),
                ],
            ),
            AssignedTopic(topic_id=UNKNOWN_ID, partitions=[AssignedPartition(partition_index=0)]),
        ]
        for broker, first in (
            (led.broker, ErrorCode.NONE),
            (other, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ):
            answer = ask_to_assign(
                target, broker, broker.epoch, AssignedDirectory(id=directory, topics=rows)
            )
            expect_error(answer.error_code, ErrorCode.NONE, "the top-level error")
            returned = [
                [partition.error_code for partition in topic.partitions]
                for topic in answer.directories[0].topics
            ]
            expected = [
                [int(first), int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
                [int(ErrorCode.UNKNOWN_TOPIC_ID)],
            ]
            expect_equal(
                returned,
                expected,
                f"broker {'that leads' if broker is led.broker else 'that has nothing'}: errors",
            )
        answer = ask_to_assign(
            target, led.broker, led.broker.epoch - 1, AssignedDirectory(id=directory, topics=rows)
        )
        expect_equal(
            (answer.error_code, answer.directories),
            (int(ErrorCode.STALE_BROKER_EPOCH), []),
            "an old broker epoch",
        )

"""Our controller and Apache Kafka's get the same random requests; responses and partition records
are compared.

The requests are generated from seeds: topics are created, widened and deleted, brokers register,
are fenced, shut down and lose directories, leaders change the ISR, operators elect and reassign.
Invalid requests are generated too. A difference names the request after which it occurred.
Source: Apache Kafka 3.9.1 itself.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftsim.cluster.ports import free_port_range
from kraftsim.metadata.rules_controller_state import FIRST_WITH_PREVIOUS_EPOCH
from kraftsim.metadata.rules_versions import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftsim.releases.release import release
from protocol.config_resources import ConfigResourceType
from protocol.messages.k19_create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol.messages.k37_create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from protocol.messages.k43_elect_leaders import ElectLeadersRequest, TopicPartitions
from protocol.messages.k44_incremental_alter_configs import (
    DELETE,
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from protocol.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from protocol.messages.k56_alter_partition import (
    AlterPartitionData,
    AlterPartitionRequest,
    AlterPartitionTopic,
    BrokerState,
)
from protocol.messages.k57_update_features import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from protocol.messages.k73_assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
)
from protocol.schema import Message
from protocol.uuids import LOST_DIRECTORY_ID, UNASSIGNED_DIRECTORY_ID, ZERO_UUID
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.controller_requests import CAUGHT_UP, CLUSTER_ID, Session
from tests.apache_kafka.harness import ApacheKafka

pytestmark = pytest.mark.interop

BROKERS = (11, 12, 13, 14, 15)
TOPICS = ("a", "b", "c.d", "c_d", "clean", "reckless")
QUIET = {
    "broker.session.timeout.ms": "3600000",
    "broker.heartbeat.interval.ms": "1000000",
    "auto.leader.rebalance.enable": "false",
    "controller.quorum.append.linger.ms": "0",
}
"""Configs with which nothing happens without a request."""
TOPIC, BROKER = int(ConfigResourceType.TOPIC), int(ConfigResourceType.BROKER)
Asked = Callable[[Session], tuple[Message, int]]


@contextmanager
def our_controller(directory: Path, release_name: str = "3.9") -> Iterator[str]:
    """A process with one controller of ours and no broker; yields its address."""
    port = free_port_range(1)
    properties = {
        "process.roles": "controller",
        "node.id": "1",
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{port}",
        "log.dirs": str(directory / "data"),
        "kraftsim.cluster.id": CLUSTER_ID,
        "kraftsim.release": release_name,
        **QUIET,
    }
    (directory / "controller.properties").write_text(
        "".join(f"{key}={value}\n" for key, value in properties.items())
    )
    with open(directory / "log.txt", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kraftsim", "node", str(directory / "controller.properties")],
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
    try:
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def session_with(address: str, seconds: float = 60) -> Session:
    """Return a session as soon as the controller is active."""
    give_up_at = time.monotonic() + seconds
    while True:
        try:
            session = Session(address)
        except (OSError, AssertionError):  # no listener yet, or no leader
            assert time.monotonic() < give_up_at, f"no controller at {address}"
            time.sleep(0.05)
            continue
        if session.image.finalized_features:
            return session
        session.close()
        time.sleep(0.05)


@contextmanager
def both_controllers(tmp_path: Path, patch: str) -> Iterator[tuple[Session, Session]]:
    """(Apache Kafka's controller, ours), each with an empty log."""
    apache = ApacheKafka(patch, {"process.roles": "controller", **QUIET})
    with apache, our_controller(tmp_path, line_of(patch)) as ours:
        sessions = session_with(apache.controller), session_with(ours)
        yield sessions
        for session in sessions:
            session.close()


def line_of(patch: str) -> str:
    """Return the release line of a patch."""
    return patch.rpartition(".")[0]


class RandomRequests:
    """Random requests from a seed.

    The current state is read from the first session, so both controllers get the same requests.

    Since 4.0 the eligible leader replicas of KIP-966 are exercised: feature levels and
    min.insync.replicas change, brokers restart uncleanly.
    """

    def __init__(self, seed: int, known: Session, patch: str) -> None:
        self._draw = random.Random(seed)
        self._known = known
        self._release = release(line_of(patch))
        self._has_eligible_leaders = (
            ELIGIBLE_LEADER_REPLICAS_VERSION in self._release.supported_features
        )
        self._incarnations = dict.fromkeys(BROKERS, 0)
        self._verbs: dict[Callable[[], Asked], int] = {
            self.register: 4,
            self.heartbeat: 14,
            self.create_topic: 6,
            self.delete_topics: 2,
            self.create_partitions: 4,
            self.elect_leaders: 10,
            self.reassign: 12,
            self.list_moves: 2,
            self.alter_partition: 30,
            self.assign_directories: 6,
        }
        if self._has_eligible_leaders:
            self._verbs |= {self.alter_min_in_sync_replicas: 4, self.update_features: 2}

    def begin(self) -> Iterator[tuple[str, Asked]]:
        """Yield the requests that unfence every broker."""
        for broker_id in BROKERS:
            yield f"register {broker_id}", self._registration(broker_id)
            yield f"unfence {broker_id}", self._heartbeat(broker_id)

    def next_request(self) -> tuple[str, Asked]:
        """Return the next request and its name."""
        verb = self._draw.choices(list(self._verbs), list(self._verbs.values()))[0]
        return verb.__name__, verb()

    # Brokers
    # ----------------------------------------------------------------------------------------------

    def register(self) -> Asked:
        """Register a broker, mostly as another incarnation."""
        broker_id = self._draw.choice(BROKERS)
        self._incarnations[broker_id] += self._draw.random() < 0.8
        return self._registration(broker_id)

    def heartbeat(self) -> Asked:
        """Send a heartbeat of a broker, mostly one that asks to be unfenced."""
        broker_id, draw = self._draw.choice(BROKERS), self._draw.random()
        offline = [self._directory(broker_id) for _ in range(self._draw.choice((0, 0, 0, 0, 1, 2)))]
        return self._heartbeat(
            broker_id, want_fence=0.6 < draw < 0.8, want_shut_down=draw > 0.75, offline=offline
        )

    def _registration(self, broker_id: int) -> Asked:
        incarnation_id = bytes([broker_id, self._incarnations[broker_id] % 256] * 8)
        is_clean, version = (
            self._draw.random() < 0.5,
            2 if self._has_eligible_leaders and self._draw.random() < 0.1 else 4,
        )

        def asked(session: Session) -> tuple[Message, int]:
            request = BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id=CLUSTER_ID,
                incarnation_id=incarnation_id,
                listeners=[
                    Listener(name="PLAINTEXT", host="127.0.0.1", port=9, security_protocol=0)
                ],
                features=[
                    Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                    for name, (lowest, highest) in self._release.supported_features.items()
                ],
                log_dirs=[bytes([broker_id, number] * 8) for number in range(1, 2 + broker_id % 3)],
            )
            if is_clean and version >= FIRST_WITH_PREVIOUS_EPOCH:
                request.previous_broker_epoch = session.broker_epoch(broker_id)
            return request, version

        return asked

    # Features and related configs
    # ----------------------------------------------------------------------------------------------

    def update_features(self) -> Asked:
        """Disable or enable eligible leader replicas, or send an invalid update."""
        name, level = self._draw.choice(
            [
                (ELIGIBLE_LEADER_REPLICAS_VERSION, 0),
                *[(ELIGIBLE_LEADER_REPLICAS_VERSION, 1)] * 3,
                ("group.version", 2),
                ("foo.version", 1),
            ]
        )
        kind, validate_only, version = (
            self._draw.choice((1, 2, 3, 9)),
            self._draw.random() < 0.1,
            self._draw.choice((1, 2)),
        )
        if level == 1 and self._draw.random() < 0.8:
            kind = 1
        update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        return lambda session: (
            UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only),
            version,
        )

    def alter_min_in_sync_replicas(self) -> Asked:
        """Change min.insync.replicas: for a topic, for all brokers, for one.

        Not while there are eligible leader replicas: Apache Kafka removes them from the partitions,
        but not from its index by broker.
        """
        if any(
            partition.eligible_leader_replicas for partition in self._known.partitions().values()
        ):
            return self.list_moves()
        resource_type, name = self._draw.choice(
            [(TOPIC, self._some_topic()[0])] * 3 + [(BROKER, ""), (BROKER, "11")]
        )
        value = None if self._draw.random() < 0.3 else str(self._draw.randint(1, 3))
        config = AlterableConfig(
            name="min.insync.replicas",
            config_operation=DELETE if value is None else SET,
            value=value,
        )
        row = AlterConfigsResource(
            resource_type=resource_type, resource_name=name, configs=[config]
        )
        return lambda session: (
            IncrementalAlterConfigsRequest(resources=[row], validate_only=False),
            1,
        )

    def _heartbeat(
        self,
        broker_id: int,
        *,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline: list[bytes] | None = None,
    ) -> Asked:
        return lambda session: (
            BrokerHeartbeatRequest(
                broker_id=broker_id,
                broker_epoch=session.broker_epoch(broker_id),
                current_metadata_offset=CAUGHT_UP,
                want_fence=want_fence,
                want_shut_down=want_shut_down,
                offline_log_dirs=offline or [],
            ),
            1,
        )

    def _directory(self, broker_id: int) -> bytes:
        """Return one of a broker's directories, or an invalid one."""
        return bytes([broker_id, self._draw.choice((1, 1, 2, 2, 3, 9))] * 8)

    # Topics
    # ----------------------------------------------------------------------------------------------

    def create_topic(self) -> Asked:
        """Create a topic with a manual assignment, sometimes an invalid one."""
        name = self._draw.choice(TOPICS)
        configs = (
            [CreatableTopicConfig(name="unclean.leader.election.enable", value="true")]
            if name == "reckless"
            else []
        )
        if self._has_eligible_leaders and self._draw.random() < 0.5:
            configs.append(
                CreatableTopicConfig(
                    name="min.insync.replicas", value=str(self._draw.randint(1, 3))
                )
            )
        numbers = list(range(self._draw.randint(1, 4))) if self._draw.random() < 0.95 else [0, 2]
        count = self._draw.randint(1, 4)
        rows = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=self._replicas(count))
            for number in numbers
        ]
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=rows, configs=configs
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=10_000, validate_only=self._draw.random() < 0.05
        )
        return lambda session: (request, 7)

    def delete_topics(self) -> Asked:
        """Delete topics by name or by id."""
        names = [self._draw.choice(TOPICS) for _ in range(self._draw.randint(1, 2))]
        by_id = self._draw.random() < 0.5

        def asked(session: Session) -> tuple[Message, int]:
            states = [
                DeleteTopicState(name=None, topic_id=session.topic_id(name))
                if by_id
                else DeleteTopicState(name=name, topic_id=ZERO_UUID)
                for name in names
            ]
            return DeleteTopicsRequest(topics=states, timeout_ms=10_000), 6

        return asked

    def create_partitions(self) -> Asked:
        """Add partitions with a manual assignment.

        Not if its partitions have different numbers of replicas: Apache Kafka compares with the one
        that is first in its hash table.
        """
        name, present = self._some_topic()
        if (
            len(
                {
                    len(partition.replicas)
                    for (topic, _), partition in self._known.partitions().items()
                    if topic == name
                }
            )
            > 1
        ):
            return self.list_moves()
        more = self._draw.choice((1, 1, 2, 0, -1))
        rows = [
            CreatePartitionsAssignment(broker_ids=self._replicas())
            for _ in range(max(more, 0) + (self._draw.random() < 0.1))
        ]
        topic = CreatePartitionsTopic(name=name, count=present + more, assignments=rows)
        request = CreatePartitionsRequest(
            topics=[topic], timeout_ms=10_000, validate_only=self._draw.random() < 0.1
        )
        return lambda session: (request, 3)

    # Leaders
    # ----------------------------------------------------------------------------------------------

    def elect_leaders(self) -> Asked:
        """Send ElectLeaders for some partitions or for all."""
        kind = self._draw.choice((0, 0, 1, 1, 1, 7 if self._draw.random() < 0.1 else 0))
        chosen = [self._some_partition() for _ in range(self._draw.randint(1, 3))]
        rows = (
            None
            if self._draw.random() < 0.3
            else [TopicPartitions(topic=name, partitions=[number]) for name, number in chosen]
        )
        return lambda session: (
            ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=10_000),
            2,
        )

    def reassign(self) -> Asked:
        """Reassign a partition, or cancel a reassignment."""
        name, number = self._some_partition()
        replicas = None if self._draw.random() < 0.35 else self._replicas()
        row = ReassignableTopic(
            name=name, partitions=[ReassignablePartition(partition_index=number, replicas=replicas)]
        )
        return lambda session: (
            AlterPartitionReassignmentsRequest(topics=[row], timeout_ms=10_000),
            0,
        )

    def list_moves(self) -> Asked:
        """List the ongoing reassignments."""
        chosen = [self._some_partition() for _ in range(3)]
        rows = (
            None
            if self._draw.random() < 0.5
            else [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=[n])
                for name, n in chosen
            ]
        )
        return lambda session: (
            ListPartitionReassignmentsRequest(topics=rows, timeout_ms=10_000),
            0,
        )

    def alter_partition(self) -> Asked:
        """Send AlterPartition from a leader, or from a broker that is not the leader."""
        name, number = self._some_partition()
        partition = self._known.partitions().get((name, number))
        version = self._draw.choice(
            (2, 3, 3, 3) if self._has_eligible_leaders else (0, 1, 2, 3, 3, 3)
        )
        leader_epoch, partition_epoch, broker_id, isr = (
            0,
            0,
            self._draw.choice(BROKERS),
            self._replicas(),
        )
        if partition is not None:
            leader_epoch, partition_epoch = (
                partition.leader_epoch + self._off_by(),
                partition.partition_epoch + self._off_by(),
            )
            broker_id = (
                partition.leader
                if partition.has_leader and self._draw.random() < 0.95
                else broker_id
            )
            isr = self._next_isr(list(partition.replicas), broker_id)
        state = self._draw.choice((0, 0, 0, 0, 1))
        stale = self._draw.choice((0, 0, 0, 0, 0, 0, 0, 1))
        incarnation = self._draw.choice(("present", "present", "present", "unchecked", "stale"))

        def asked(session: Session) -> tuple[Message, int]:
            ways: dict[str, Callable[[int], int]] = {
                "present": session.broker_epoch,
                "unchecked": lambda _: -1,
                "stale": lambda _: 0,
            }
            epochs = ways[incarnation]
            row = AlterPartitionData(
                partition_index=number, leader_epoch=leader_epoch, partition_epoch=partition_epoch
            )
            if version >= 1:
                row.leader_recovery_state = state
            if version >= 3:
                row.new_isr_with_epochs = [
                    BrokerState(broker_id=replica, broker_epoch=epochs(replica)) for replica in isr
                ]
            else:
                row.new_isr = isr
            topic = AlterPartitionTopic(partitions=[row])
            if version >= 2:
                topic.topic_id = session.topic_id(name)
            else:
                topic.topic_name = name
            return AlterPartitionRequest(
                broker_id=broker_id,
                broker_epoch=session.broker_epoch(broker_id) - stale,
                topics=[topic],
            ), version

        return asked

    def assign_directories(self) -> Asked:
        """Let a broker report the directories of some replicas."""
        broker_id = self._draw.choice(BROKERS)
        directory = self._draw.choice(
            (
                self._directory(broker_id),
                self._directory(broker_id),
                LOST_DIRECTORY_ID,
                UNASSIGNED_DIRECTORY_ID,
            )
        )
        chosen = [self._some_partition() for _ in range(self._draw.randint(1, 3))]

        def asked(session: Session) -> tuple[Message, int]:
            rows = [
                AssignedTopic(
                    topic_id=session.topic_id(name),
                    partitions=[AssignedPartition(partition_index=number)],
                )
                for name, number in chosen
            ]
            directories = [AssignedDirectory(id=directory, topics=rows)]
            request = AssignReplicasToDirsRequest(
                broker_id=broker_id,
                broker_epoch=session.broker_epoch(broker_id),
                directories=directories,
            )
            return request, 0

        return asked

    # Generators
    # ----------------------------------------------------------------------------------------------

    def _replicas(self, count: int = 0) -> list[int]:
        """Generate replicas; rarely a duplicate, or one that is not registered."""
        drawn = self._draw.sample(BROKERS, count or self._draw.randint(1, 4))
        if self._draw.random() < 0.03:
            drawn[-1] = self._draw.choice((drawn[0], 99))
        return drawn

    def _next_isr(self, replicas: list[int], leader: int) -> list[int]:
        """Generate an ISR of some replicas that contains the leader; rarely an invalid one."""
        others = [replica for replica in replicas if replica != leader]
        isr = [
            *self._draw.sample(others, self._draw.randint(len(others) // 2, len(others))),
            leader,
        ]
        self._draw.shuffle(isr)
        if self._draw.random() < 0.04:
            isr[0] = self._draw.choice((*BROKERS, 99, -1))
        return isr

    def _off_by(self) -> int:
        return self._draw.choice((*(0,) * 30, -1, 1))

    def _some_topic(self) -> tuple[str, int]:
        """Return (name, number of partitions) of a topic that mostly exists."""
        counts = dict.fromkeys(TOPICS[:1], 1)
        for name, _ in self._known.partitions():
            counts[name] = sum(1 for other, _ in self._known.partitions() if other == name)
        return self._draw.choice(list(counts.items()))

    def _some_partition(self) -> tuple[str, int]:
        there = list(self._known.partitions())
        return (
            self._draw.choice(there)
            if there and self._draw.random() < 0.97
            else (self._draw.choice(TOPICS), 7)
        )


OF_ITS_OWN = '"errorCode": -1,'
LONG_ENOUGH = 100
"""The minimum number of equal steps before a failure of Apache Kafka."""


@pytest.mark.parametrize("patch", [DEFAULT_RELEASE, NEWEST_RELEASE])
@pytest.mark.parametrize("seed", range(int(os.environ.get("SEEDS", 3))))
def test_both_controllers_give_the_same_responses_and_records(
    seed: int, patch: str, tmp_path: Path
) -> None:
    """Field by field, messages included; records by type, version and content.

    Not with 4.1.2, whose controller fails when a directory fails that once had a partition of a
    deleted topic. A sequence ends where Apache Kafka's controller fails: 4.4.0 sometimes returns
    error -1 for a reassignment.
    """
    with both_controllers(tmp_path, patch) as (apache, ours):
        steps, history = RandomRequests(seed, apache, patch), []
        begun = list(steps.begin())
        for step in range(600):
            name, asked = begun[step] if step < len(begun) else steps.next_request()
            there, here = apache.send(asked), ours.send(asked)
            history.append(name)
            if OF_ITS_OWN in there.answer and OF_ITS_OWN not in here.answer:
                assert step > LONG_ENOUGH, (
                    f"Apache Kafka failed by itself in step {step} of seed {seed}, {name}"
                )
                return
            assert here == there, (
                f"step {step} of seed {seed}, {name}: {asked(apache)}\nafter {history[-12:]}"
            )
        assert apache.partitions() == ours.partitions()

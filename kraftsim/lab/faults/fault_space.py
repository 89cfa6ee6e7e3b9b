"""The fault space of a scenario: its hosts by role, their links, the files that they write, and the
moments at which a crash is most revealing.

A scenario declares its fault space as data; the random fault generator (`draw_faults`) draws
targets and triggers from it alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from kraftsim.lab.faults.fault import Between, DataLoss, FileClass, OneOf, Value

CONTROLLERS, BROKERS, CLIENTS, ZOOKEEPER = "controllers", "brokers", "clients", "zookeeper"


@dataclass(frozen=True, slots=True)
class Api:
    """An API that the scenario uses.

    `clients` and `servers` are roles; a run has about `frames_max` requests of it.
    """

    key: int
    clients: str
    servers: str
    frames_max: int


@dataclass(frozen=True, slots=True)
class Files:
    """A class of files that a role writes, and about how often."""

    file_class: FileClass
    role: str
    operations: tuple[str, ...]
    times_max: int


@dataclass(frozen=True, slots=True)
class FaultMoment:
    """An event at an interesting moment of a role's node, and about how often it occurs; `is_only`:
    never at another role.
    """

    kind: str
    role: str
    times_max: int
    fields: Mapping[str, Value] = field(default_factory=dict)
    is_only: bool = True


@dataclass(frozen=True, slots=True)
class LastingState:
    """States that a node of a role is in for a while, all at once (`states.STATES`), and about how
    often; `is_only`: never another role.
    """

    states: tuple[str, ...]
    role: str
    times_max: int
    is_only: bool = True


class Sized(Protocol):
    """Creates the fault space of a cluster."""

    def __call__(self, *, controllers: int, brokers: int) -> "FaultSpace":
        """Return the fault space of a cluster with so many nodes."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class FaultSpace:
    """A fault space.

    `may_lose` are the hosts at which each data-loss class violates no guarantee of the scenario.

    `settings` are drawn per run, within their ranges; `fault_ms` is the period after arming in
    which faults with a time trigger fire.
    """

    hosts: Mapping[str, tuple[str, ...]]
    links: tuple[tuple[str, str], ...]
    apis: tuple[Api, ...] = ()
    files: tuple[Files, ...] = ()
    moments: tuple[FaultMoment, ...] = ()
    lasting_states: tuple[LastingState, ...] = ()
    may_lose: Mapping[DataLoss, tuple[str, ...]] = field(default_factory=dict)
    settings: Mapping[str, Between | OneOf] = field(default_factory=dict)
    fault_ms: int = 6000
    has_store: bool = False
    """Whether brokers share a remote store."""
    has_zookeeper: bool = False
    """Whether brokers keep their metadata in ZooKeeper."""
    may_change_release: bool = False
    """Whether nodes may run another release for a while."""
    clients_fail: bool = False
    """Whether the processes of clients may have faults, too: applications that are restarted."""
    may_answer_fatal: tuple[str, ...] = ()
    """The hosts of clients that may get errors after which they give up or abort, such
    as TOPIC_AUTHORIZATION_FAILED: the workload goes on with others, and its guarantees hold.
    """
    of_size: "Sized"
    """Returns the fault space for other numbers of nodes."""

    def of(self, role: str) -> tuple[str, ...]:
        """Return the hosts of a role."""
        return self.hosts.get(role, ())

    @property
    def leaders(self) -> tuple[str, ...]:
        """The possible leaders: voters of the quorum, or, in ZooKeeper mode, brokers, of which one
        is controller.
        """
        return self.of(CONTROLLERS) or (self.of(BROKERS) if self.has_zookeeper else ())

    @property
    def nodes(self) -> tuple[str, ...]:
        """The hosts whose processes and disks may have faults: all but clients that may not."""
        return tuple(
            host
            for role, hosts in self.hosts.items()
            if role != CLIENTS or self.clients_fail
            for host in hosts
        )

    def role_of(self, host: str) -> str:
        """Return the role of a host."""
        return next(role for role, hosts in self.hosts.items() if host in hosts)


PRODUCE, FETCH, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 18, 22
OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP = 9, 10, 11, 12, 14
ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, WRITE_TXN_MARKERS, TXN_OFFSET_COMMIT = (
    24,
    25,
    26,
    27,
    28,
)
OFFSET_FOR_LEADER_EPOCH, ALTER_PARTITION = 23, 56
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, CONTROLLED_SHUTDOWN = 4, 5, 6, 7
VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, FETCH_SNAPSHOT = 52, 53, 54, 59
BROKER_REGISTRATION, BROKER_HEARTBEAT, ALLOCATE_PRODUCER_IDS = 62, 63, 67

QUORUM_APIS = (
    Api(FETCH, CONTROLLERS, CONTROLLERS, 200),
    Api(VOTE, CONTROLLERS, CONTROLLERS, 8),
    Api(BEGIN_QUORUM_EPOCH, CONTROLLERS, CONTROLLERS, 6),
    Api(END_QUORUM_EPOCH, CONTROLLERS, CONTROLLERS, 2),
    Api(FETCH_SNAPSHOT, CONTROLLERS, CONTROLLERS, 4),
)
BROKER_APIS = (
    Api(FETCH, BROKERS, CONTROLLERS, 200),
    Api(BROKER_REGISTRATION, BROKERS, CONTROLLERS, 4),
    Api(BROKER_HEARTBEAT, BROKERS, CONTROLLERS, 30),
    Api(ALLOCATE_PRODUCER_IDS, BROKERS, CONTROLLERS, 8),
)
PRODUCER_ID_APIS = (
    Api(INIT_PRODUCER_ID, CLIENTS, BROKERS, 2000),
    Api(API_VERSIONS, CLIENTS, BROKERS, 8),
)
WRITER_APIS = (Api(PRODUCE, CLIENTS, BROKERS, 300), Api(METADATA, CLIENTS, BROKERS, 10))
TRANSACTION_APIS = (
    Api(FIND_COORDINATOR, CLIENTS, BROKERS, 12),
    Api(INIT_PRODUCER_ID, CLIENTS, BROKERS, 8),
    Api(ADD_PARTITIONS_TO_TXN, CLIENTS, BROKERS, 60),
    Api(ADD_OFFSETS_TO_TXN, CLIENTS, BROKERS, 60),
    Api(TXN_OFFSET_COMMIT, CLIENTS, BROKERS, 60),
    Api(END_TXN, CLIENTS, BROKERS, 60),
    Api(OFFSET_FETCH, CLIENTS, BROKERS, 10),
    Api(JOIN_GROUP, CLIENTS, BROKERS, 8),
    Api(SYNC_GROUP, CLIENTS, BROKERS, 6),
    Api(HEARTBEAT, CLIENTS, BROKERS, 30),
    Api(FETCH, CLIENTS, BROKERS, 200),
    Api(WRITE_TXN_MARKERS, BROKERS, BROKERS, 60),
    Api(ADD_PARTITIONS_TO_TXN, BROKERS, BROKERS, 60),
)
REPLICATION_APIS = (
    Api(FETCH, BROKERS, BROKERS, 400),
    Api(OFFSET_FOR_LEADER_EPOCH, BROKERS, BROKERS, 8),
    Api(ALTER_PARTITION, BROKERS, CONTROLLERS, 8),
)

METADATA_FILES = (Files(FileClass.METADATA_LOG, CONTROLLERS, ("write", "flush"), 60),)
QUORUM_FILES = (
    *METADATA_FILES,
    Files(FileClass.QUORUM_STATE, CONTROLLERS, ("write", "flush", "rename"), 8),
    Files(FileClass.CHECKPOINT, CONTROLLERS, ("write", "flush", "rename"), 8),
)
PARTITION_FILES = (Files(FileClass.PARTITION_LOG, BROKERS, ("write",), 200),)
ZOOKEEPER_FILES = (Files(FileClass.ZOOKEEPER_LOG, ZOOKEEPER, ("write", "flush"), 40),)

CONTROLLER_MOMENTS = (
    FaultMoment("MetadataAppended", CONTROLLERS, 60),
    FaultMoment("MetadataAppended", CONTROLLERS, 6, {"record_kinds": "ProducerIdsRecord"}),
    FaultMoment("HighWatermarkMoved", CONTROLLERS, 60, {"is_leader": True}),
    FaultMoment("ProducerIdBlockAllocated", CONTROLLERS, 6),
    FaultMoment("BrokerRegistered", CONTROLLERS, 5),
    FaultMoment("BrokerUnfenced", CONTROLLERS, 5),
)
QUORUM_MOMENTS = (
    FaultMoment("ControllerElected", CONTROLLERS, 3),
    FaultMoment("ControllerResigned", CONTROLLERS, 3),
    FaultMoment("VoteAnswered", CONTROLLERS, 6, {"is_granted": True, "is_pre_vote": False}),
    FaultMoment("VoteSent", CONTROLLERS, 6),
    FaultMoment("MetadataWritten", CONTROLLERS, 120, is_only=False),
    FaultMoment("MetadataTruncated", CONTROLLERS, 2, is_only=False),
    FaultMoment("MetadataReverted", CONTROLLERS, 2),
)
SNAPSHOT_MOMENTS = (
    FaultMoment("SnapshotWritten", CONTROLLERS, 6, is_only=False),
    FaultMoment("SnapshotLoaded", CONTROLLERS, 2, is_only=False),
)
BROKER_MOMENTS = (
    FaultMoment("ProducerIdBlockRequested", BROKERS, 4),
    FaultMoment("ProducerIdBlockReceived", BROKERS, 4),
    FaultMoment("BrokerEpochReceived", BROKERS, 2),
)
CONTROLLER_STATES = (
    LastingState(("leader",), CONTROLLERS, 3),
    LastingState(("appended-not-committed",), CONTROLLERS, 40),
    LastingState(("ids-not-committed",), CONTROLLERS, 6),
    LastingState(("written-not-flushed",), CONTROLLERS, 60, is_only=False),
)
QUORUM_STATES = (
    LastingState(("candidate",), CONTROLLERS, 4),
    LastingState(("follower",), CONTROLLERS, 4, is_only=False),
    LastingState(("without-leader",), CONTROLLERS, 4, is_only=False),
    LastingState(("replicated-not-committed",), CONTROLLERS, 60, is_only=False),
    LastingState(("vote-not-told",), CONTROLLERS, 4),
    LastingState(("leader", "written-not-flushed"), CONTROLLERS, 40),
    LastingState(("follower", "written-not-flushed"), CONTROLLERS, 40, is_only=False),
)
BROKER_STATES = (LastingState(("asking-for-block",), BROKERS, 4),)
PARTITION_MOMENTS = (
    FaultMoment("BatchAppended", BROKERS, 200),
    FaultMoment("LeaderElected", BROKERS, 8),
    FaultMoment("DuplicateAnswered", BROKERS, 2),
)
REPLICATION_MOMENTS = (
    FaultMoment("BatchReplicated", BROKERS, 400),
    FaultMoment("PartitionHighWatermarkMoved", BROKERS, 200, {"is_leader": True}),
    FaultMoment("PartitionHighWatermarkMoved", BROKERS, 400, {"is_leader": False}),
    FaultMoment("LeaderFollowed", BROKERS, 20),
    FaultMoment("IsrChangeAsked", BROKERS, 8),
    FaultMoment("IsrChanged", BROKERS, 8),
    FaultMoment("PartitionTruncated", BROKERS, 3),
)
QUORUM_SETTINGS: Mapping[str, Between | OneOf] = {
    "controller.quorum.election.timeout.ms": Between(300, 1500),
    "controller.quorum.election.backoff.max.ms": Between(
        50, 1000, floor=200
    ),  # backoff starts at 100 ms: with a lower maximum, candidates stay in lockstep
    "controller.quorum.fetch.timeout.ms": Between(
        500, 2000, floor=700
    ),  # an idle follower is answered after 500 ms: with less no leader lasts
}
ZOOKEEPER_MODE_APIS = (
    Api(LEADER_AND_ISR, BROKERS, BROKERS, 60),
    Api(UPDATE_METADATA, BROKERS, BROKERS, 60),
    Api(STOP_REPLICA, BROKERS, BROKERS, 8),
    Api(CONTROLLED_SHUTDOWN, BROKERS, BROKERS, 4),
    Api(ALTER_PARTITION, BROKERS, BROKERS, 8),
    Api(ALLOCATE_PRODUCER_IDS, BROKERS, BROKERS, 8),
    Api(FETCH, BROKERS, BROKERS, 400),
)
ZOOKEEPER_MODE_MOMENTS = (
    FaultMoment("ZookeeperControllerElected", BROKERS, 3),
    FaultMoment("ZookeeperControllerReady", BROKERS, 3),
    FaultMoment("BrokerLeft", BROKERS, 4),
    FaultMoment("BrokerJoined", BROKERS, 8),
    FaultMoment("BrokerSessionLost", BROKERS, 2),
    FaultMoment("ProducerIdBlockAllocated", BROKERS, 6),
    FaultMoment("ZnodeChanged", ZOOKEEPER, 300),
    FaultMoment("ZookeeperSessionEnded", ZOOKEEPER, 4),
)
ZOOKEEPER_SETTINGS: Mapping[str, Between | OneOf] = {
    "zookeeper.session.timeout.ms": Between(2000, 6000),
}
BROKER_SETTINGS: Mapping[str, Between | OneOf] = {
    "broker.session.timeout.ms": Between(2000, 9000),
    "broker.heartbeat.interval.ms": Between(100, 1000),
    "metadata.log.max.record.bytes.between.snapshots": OneOf(("500", "2000", "20000", "20971520")),
    "metadata.log.segment.bytes": OneOf(("1000", "4000", "20000")),
}


def cluster_fault_space(
    *,
    controllers: int,
    brokers: int,
    clients: tuple[str, ...],
    apis: tuple[Api, ...],
    brokers_keep_records: bool,
    brokers_replicate: bool = False,
    fault_seconds: float,
    settings: Mapping[str, Between | OneOf] | None = None,
    may_answer_fatal: tuple[str, ...] = (),
) -> FaultSpace:
    """Return the fault space of a KRaft cluster with the node names of `ClusterSpec`; `apis` are
    those of the clients.

    `settings` extend or override the default ones. Brokers without replication may lose no records,
    for Kafka has no other guarantee there; nor may brokers with replication, for with several power
    losses Kafka loses acknowledged records that no replica has flushed.
    """

    is_quorum = controllers > 1
    controller_names = tuple(f"controller-{101 + number}" for number in range(controllers))
    broker_names = tuple(f"broker-{1 + number}" for number in range(brokers))
    unflushed = controller_names if brokers_keep_records else (*controller_names, *broker_names)
    return FaultSpace(
        hosts={CONTROLLERS: controller_names, BROKERS: broker_names, CLIENTS: clients},
        links=(
            *(((CONTROLLERS, CONTROLLERS),) if is_quorum else ()),
            (BROKERS, CONTROLLERS),
            *(((BROKERS, BROKERS),) if brokers_replicate else ()),
            *(((CLIENTS, BROKERS),) if clients else ()),
        ),
        apis=(
            *(QUORUM_APIS if is_quorum else ()),
            *BROKER_APIS,
            *(REPLICATION_APIS if brokers_replicate else ()),
            *apis,
        ),
        files=(
            *(QUORUM_FILES if is_quorum else METADATA_FILES),
            *(PARTITION_FILES if brokers_keep_records else ()),
        ),
        moments=(
            *CONTROLLER_MOMENTS,
            *((*QUORUM_MOMENTS, *SNAPSHOT_MOMENTS) if is_quorum else ()),
            *BROKER_MOMENTS,
            *(PARTITION_MOMENTS if brokers_keep_records else ()),
            *(REPLICATION_MOMENTS if brokers_replicate else ()),
        ),
        lasting_states=(*CONTROLLER_STATES, *(QUORUM_STATES if is_quorum else ()), *BROKER_STATES),
        may_lose={
            DataLoss.UNFLUSHED: unflushed,
            DataLoss.TRUST: unflushed,
            DataLoss.FLUSHED: () if brokers_keep_records else broker_names,
        },
        settings={**BROKER_SETTINGS, **(QUORUM_SETTINGS if is_quorum else {}), **(settings or {})},
        fault_ms=int(fault_seconds * 1000),
        may_answer_fatal=may_answer_fatal,
        of_size=partial(
            cluster_fault_space,
            may_answer_fatal=may_answer_fatal,
            clients=clients,
            apis=apis,
            brokers_keep_records=brokers_keep_records,
            brokers_replicate=brokers_replicate,
            fault_seconds=fault_seconds,
            settings=settings,
        ),
    )


def zookeeper_fault_space(
    *,
    controllers: int = 0,
    brokers: int,
    clients: tuple[str, ...],
    apis: tuple[Api, ...],
    fault_seconds: float,
) -> FaultSpace:
    """Return the fault space of a cluster in ZooKeeper mode with replication: ZooKeeper flushes
    before it answers, so it may lose power.
    """
    assert controllers == 0, "the controller is a broker here"
    broker_names = tuple(f"broker-{1 + number}" for number in range(brokers))
    server = ("zookeeper-1",)
    return FaultSpace(
        hosts={BROKERS: broker_names, ZOOKEEPER: server, CLIENTS: clients},
        links=((BROKERS, ZOOKEEPER), (BROKERS, BROKERS), (CLIENTS, BROKERS)),
        apis=(*ZOOKEEPER_MODE_APIS, *apis),
        files=(*ZOOKEEPER_FILES, *PARTITION_FILES),
        moments=(*ZOOKEEPER_MODE_MOMENTS, *PARTITION_MOMENTS, *REPLICATION_MOMENTS),
        lasting_states=BROKER_STATES,
        may_lose={DataLoss.UNFLUSHED: server},
        settings=ZOOKEEPER_SETTINGS,
        fault_ms=int(fault_seconds * 1000),
        has_zookeeper=True,
        of_size=partial(
            zookeeper_fault_space, clients=clients, apis=apis, fault_seconds=fault_seconds
        ),
    )

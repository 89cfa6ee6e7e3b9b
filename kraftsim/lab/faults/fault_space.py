"""The fault space of a scenario: its hosts by role, their links, the files that they write, and the
moments at which a crash is most revealing.

A scenario declares its fault space as data; the random fault generator (`draw_faults`) draws
targets and triggers from it alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Protocol

from kraftsim.lab.faults.fault import (
    FLUSHES_EVERY_BATCH,
    Between,
    DataLoss,
    FileClass,
    OneOf,
    Value,
)

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


class Mix(StrEnum):
    """How a seed combines the faults that a scenario draws itself with random ones."""

    EITHER = "own faults, random faults, or both"
    ON_TOP = "own faults, alone or with random faults on top"
    """Own faults are always there: the scenario is about them."""
    APART = "own faults or random faults"
    """The two are never combined: own faults take all data that a run may lose."""


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
    which faults with a time trigger fire. `omits` are kinds that are never drawn: the scenario
    writes the reason beside them.
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
    mix: Mix = Mix.EITHER
    """Unless it is EITHER, a run with own faults alone also has the settings and the speeds of the
    scenario, so that its directed check stays sharp.
    """
    omits: tuple[str, ...] = ()
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
    def leaders_at_any_time(self) -> tuple[str, ...]:
        """The same, and in a migration the brokers, too: one is controller before and after it."""
        brokers = self.of(BROKERS) if self.has_zookeeper else ()
        return tuple(dict.fromkeys((*self.leaders, *brokers)))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The hosts whose processes and disks may have faults: all but clients that may not."""
        return tuple(
            dict.fromkeys(
                host
                for role, hosts in self.hosts.items()
                if role != CLIENTS or self.clients_fail
                for host in hosts
            )
        )

    def roles_of(self, host: str) -> tuple[str, ...]:
        """Return the roles of a host: a combined node is a controller and a broker."""
        return tuple(role for role, hosts in self.hosts.items() if host in hosts)

    def role_of(self, host: str) -> str:
        """Return the first role of a host."""
        return self.roles_of(host)[0]


PRODUCE, FETCH, METADATA, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 3, 18, 22
LIST_OFFSETS, OFFSET_COMMIT = 2, 8
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
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS = 19, 20, 21
CREATE_ACLS, DELETE_ACLS, ALTER_CLIENT_QUOTAS, INCREMENTAL_ALTER_CONFIGS = 30, 31, 49, 44
ALTER_REPLICA_LOG_DIRS, ELECT_LEADERS, ALTER_PARTITION_REASSIGNMENTS = 34, 43, 45
UPDATE_FEATURES, ENVELOPE = 57, 58
VOTE, BEGIN_QUORUM_EPOCH, END_QUORUM_EPOCH, FETCH_SNAPSHOT = 52, 53, 54, 59
BROKER_REGISTRATION, BROKER_HEARTBEAT, ALLOCATE_PRODUCER_IDS = 62, 63, 67
CONSUMER_GROUP_HEARTBEAT = 68
SHARE_GROUP_HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 76, 78, 79
INITIALIZE_SHARE_STATE, READ_SHARE_STATE, WRITE_SHARE_STATE = 83, 84, 85
DELETE_GROUPS, OFFSET_DELETE = 42, 47

ENDS_A_NODE = (
    *("kill", "restart", "stop", "crash-loop", "power-loss", "blackout", "half-open-restart"),
    *("zombie", "torn-write", "lost-name", "truncated-snapshot"),
    *("disk-full", "read-error", "flush-error"),
)
"""Kinds after which a process ends, and starts again later."""
NEEDS_A_QUORUM = ("old-epoch-answer",)
"""Kinds without an effect where there is one controller: no other one answers from an older epoch,
and itself only where it has failed since the fault was armed, which is too rare.
"""
CLEAN_STOPS = ("stop",)
"""A broker that stops cleanly writes a producer snapshot, which has the latest batch of a producer
only. Of several batches in flight whose responses are lost, it rejects all but the last as out of
order when it runs again, and the producer appends their records once more: so does Apache Kafka
without replicas.
"""
LATE_REQUESTS = (
    *("duplicate-request", "overtaken-request", "late-reply"),
    *("clog", "swizzle-clog", "partition", "ring-partition", "isolate-leader", "half-open"),
    *("slow-link", "heavy-tail", "bandwidth-cap"),
    *("pause", "zombie", "loop-stalls", "slow-cpu", "half-open-restart"),
)
"""Kinds after which a server may get a request that its client has given up, or get it again."""

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
ORDERS_APIS = (
    Api(FIND_COORDINATOR, CLIENTS, BROKERS, 8),
    Api(INIT_PRODUCER_ID, CLIENTS, BROKERS, 8),
    Api(PRODUCE, CLIENTS, BROKERS, 120),
    Api(METADATA, CLIENTS, BROKERS, 12),
    Api(ADD_PARTITIONS_TO_TXN, CLIENTS, BROKERS, 40),
    Api(END_TXN, CLIENTS, BROKERS, 40),
    Api(WRITE_TXN_MARKERS, BROKERS, BROKERS, 40),
    Api(ADD_PARTITIONS_TO_TXN, BROKERS, BROKERS, 40),
)
"""Those of producers of transactions without a group."""
GROUP_OFFSET_APIS = (
    Api(ADD_OFFSETS_TO_TXN, CLIENTS, BROKERS, 12),
    Api(TXN_OFFSET_COMMIT, CLIENTS, BROKERS, 12),
    Api(OFFSET_COMMIT, CLIENTS, BROKERS, 8),
    Api(OFFSET_FETCH, CLIENTS, BROKERS, 8),
)
"""Those of an application that commits offsets of a group without members."""
READER_APIS = (
    Api(FETCH, CLIENTS, BROKERS, 100),
    Api(LIST_OFFSETS, CLIENTS, BROKERS, 20),
)
CONSUMER_GROUP_APIS = (Api(CONSUMER_GROUP_HEARTBEAT, CLIENTS, BROKERS, 60),)
SHARE_GROUP_APIS = (
    Api(FIND_COORDINATOR, CLIENTS, BROKERS, 8),
    Api(SHARE_GROUP_HEARTBEAT, CLIENTS, BROKERS, 40),
    Api(SHARE_FETCH, CLIENTS, BROKERS, 120),
    Api(SHARE_ACKNOWLEDGE, CLIENTS, BROKERS, 20),
    Api(FIND_COORDINATOR, BROKERS, BROKERS, 6),
    Api(INITIALIZE_SHARE_STATE, BROKERS, BROKERS, 2),
    Api(READ_SHARE_STATE, BROKERS, BROKERS, 4),
    Api(WRITE_SHARE_STATE, BROKERS, BROKERS, 60),
)
OFFSET_KEEPER_APIS = (
    Api(OFFSET_COMMIT, CLIENTS, BROKERS, 30),
    Api(DELETE_GROUPS, CLIENTS, BROKERS, 12),
    Api(OFFSET_DELETE, CLIENTS, BROKERS, 12),
)
FORWARDED_APIS = (Api(ENVELOPE, BROKERS, CONTROLLERS, 10),)
"""What brokers forward to the active controller: requests of administrators."""
REPLICATION_APIS = (
    Api(FETCH, BROKERS, BROKERS, 400),
    Api(ALTER_PARTITION, BROKERS, CONTROLLERS, 8),
)
EPOCH_APIS = (Api(OFFSET_FOR_LEADER_EPOCH, BROKERS, BROKERS, 8),)
"""What followers ask with an inter.broker.protocol.version below 2.7: later, Fetch answers it."""

METADATA_FILES = (Files(FileClass.METADATA_LOG, CONTROLLERS, ("write", "flush"), 60),)
QUORUM_FILES = (
    *METADATA_FILES,
    Files(FileClass.QUORUM_STATE, CONTROLLERS, ("write", "flush", "rename"), 8),
    Files(FileClass.CHECKPOINT, CONTROLLERS, ("write", "flush", "rename"), 8),
)
BROKER_FILES = (Files(FileClass.METADATA_LOG, BROKERS, ("write", "flush"), 60),)
PARTITION_FILES = (
    Files(FileClass.PARTITION_LOG, BROKERS, ("write",), 200),
    Files(FileClass.PARTITION_LOG, BROKERS, ("flush",), 20),
    Files(FileClass.OFFSET_INDEX, BROKERS, ("write", "flush"), 20),
    Files(FileClass.TIME_INDEX, BROKERS, ("write", "flush"), 20),
    Files(FileClass.PRODUCER_SNAPSHOT, BROKERS, ("write", "flush"), 12),
    Files(FileClass.LEADER_EPOCHS, BROKERS, ("write", "flush", "rename"), 12),
    Files(FileClass.RECOVERY_POINTS, BROKERS, ("write", "flush", "rename"), 3),
    Files(FileClass.HIGH_WATERMARKS, BROKERS, ("write", "flush", "rename"), 6),
    Files(FileClass.LOG_STARTS, BROKERS, ("write", "flush", "rename"), 3),
)
"""What brokers write for every partition, and for each of their log directories."""
FLUSHED_FILES = (Files(FileClass.PARTITION_LOG, BROKERS, ("write", "flush"), 200),)
"""Of brokers that flush every batch."""
SEGMENT_FILES = (
    Files(FileClass.PARTITION_LOG, BROKERS, ("flush",), 40),
    Files(FileClass.OFFSET_INDEX, BROKERS, ("write", "flush"), 40),
    Files(FileClass.TIME_INDEX, BROKERS, ("write", "flush"), 40),
    Files(FileClass.PRODUCER_SNAPSHOT, BROKERS, ("write", "flush"), 40),
)
"""Of brokers with small segments: what is written and flushed at each roll."""
COMPACTED_FILES = (
    Files(FileClass.PARTITION_LOG, BROKERS, ("rename", "flush"), 100),
    Files(FileClass.OFFSET_INDEX, BROKERS, ("rename", "flush"), 100),
    Files(FileClass.CLEANER_OFFSETS, BROKERS, ("write", "flush", "rename"), 40),
    Files(FileClass.RECOVERY_POINTS, BROKERS, ("write", "flush", "rename"), 40),
)
"""Of brokers that clean compacted logs."""
TRANSACTION_FILES = (Files(FileClass.TRANSACTION_INDEX, BROKERS, ("write", "flush"), 30),)
"""Partitions write their aborted transactions."""
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
TRANSACTION_MOMENTS = (
    FaultMoment("TransactionStateChanged", BROKERS, 100),
    *(
        FaultMoment("TransactionStateChanged", BROKERS, 20, {"state": state})
        for state in ("Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
    ),
    FaultMoment("TransactionVerified", BROKERS, 40),
    FaultMoment("MarkerAppended", BROKERS, 60),
    FaultMoment("LastStableOffsetMoved", BROKERS, 60),
    FaultMoment("TransactionAbortForced", BROKERS, 4),
    FaultMoment("TransactionsLoaded", BROKERS, 8),
    FaultMoment("TransactionsUnloaded", BROKERS, 4),
    FaultMoment("ProducerFenced", BROKERS, 4),
)
GROUP_MOMENTS = (
    FaultMoment("GroupsLoaded", BROKERS, 6),
    FaultMoment("GroupsUnloaded", BROKERS, 4),
    FaultMoment("PendingOffsetAdded", BROKERS, 30),
    FaultMoment("OffsetMaterialised", BROKERS, 30),
    FaultMoment("PendingOffsetDropped", BROKERS, 6),
    FaultMoment("OffsetReturned", BROKERS, 12),
)
RECOVERY_MOMENTS = (
    FaultMoment("LogRecovered", BROKERS, 60, is_only=False),
    FaultMoment("LogStartMoved", BROKERS, 20),
    FaultMoment("ProducerSnapshotTaken", BROKERS, 60),
)
"""Restarts, deletions at the head of a log, and rolled segments."""
OFFSET_MOMENTS = (
    *GROUP_MOMENTS,
    FaultMoment("OffsetCommitted", BROKERS, 40),
    FaultMoment("OffsetForgotten", BROKERS, 20),
)
CONSUMER_GROUP_MOMENTS = (
    *OFFSET_MOMENTS,
    FaultMoment("MemberEpochSet", BROKERS, 40),
    FaultMoment("MemberEpochSet", BROKERS, 12, {"member_state": 1}),
    FaultMoment("MemberEpochSet", BROKERS, 12, {"member_epoch": -1}),
    FaultMoment("ConsumerGroupEnded", BROKERS, 2),
)
SHARE_GROUP_MOMENTS = (
    FaultMoment("SharePartitionLoaded", BROKERS, 4),
    FaultMoment("ShareRecordsAcquired", BROKERS, 100),
    FaultMoment("ShareStateStored", BROKERS, 100),
    FaultMoment("ShareStartOffsetMoved", BROKERS, 60),
    FaultMoment("CoordinatedShareStored", BROKERS, 100),
)
COMPACTION_MOMENTS = (FaultMoment("SegmentsCleaned", BROKERS, 20),)
SNAPSHOT_OF_PRODUCERS_MOMENTS = (FaultMoment("ProducerSnapshotTaken", BROKERS, 20),)
"""Where segments are small."""
TRANSACTION_STATES = (LastingState(("markers-missing",), BROKERS, 40),)
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
FLUSH_SETTINGS: Mapping[str, Between | OneOf] = {
    key: OneOf((value,)) for key, value in FLUSHES_EVERY_BATCH.items()
}


def cluster_fault_space(
    *,
    controllers: int,
    brokers: int,
    clients: tuple[str, ...],
    apis: tuple[Api, ...],
    brokers_keep_records: bool,
    brokers_replicate: bool = False,
    brokers_may_flush: bool = False,
    combined: int = 0,
    fault_seconds: float,
    settings: Mapping[str, Between | OneOf] | None = None,
    may_answer_fatal: tuple[str, ...] = (),
    files: tuple[Files, ...] = (),
    moments: tuple[FaultMoment, ...] = (),
    lasting_states: tuple[LastingState, ...] = (),
    mix: Mix = Mix.EITHER,
    omits: tuple[str, ...] = (),
) -> FaultSpace:
    """Return the fault space of a KRaft cluster with the node names of `ClusterSpec`; `apis` are
    those of the clients.

    `settings` extend or override the default ones; `files`, `moments` and `lasting_states` are
    those of the workload. Brokers without replication may lose no records, for Kafka has no other
    guarantee there; nor may brokers with replication, for with several power losses Kafka loses
    acknowledged records that no replica has flushed. With `brokers_may_flush` brokers flush every
    batch in runs with power losses, and then any of them may lose power. `combined` is the number
    of nodes with both roles: a run with fewer nodes has as many as it can.
    """

    is_quorum = controllers > 1
    controller_names, broker_names = _names(controllers, brokers, combined)
    everything = tuple(dict.fromkeys((*controller_names, *broker_names)))
    unflushed = (
        everything
        if brokers_may_flush or not brokers_keep_records
        else tuple(name for name in controller_names if name not in broker_names)
    )
    return FaultSpace(
        hosts={CONTROLLERS: controller_names, BROKERS: broker_names, CLIENTS: clients},
        links=_links(is_quorum, brokers_replicate, has_clients=bool(clients)),
        apis=(
            *(QUORUM_APIS if is_quorum else ()),
            *BROKER_APIS,
            *(REPLICATION_APIS if brokers_replicate else ()),
            *apis,
        ),
        files=(*_files(is_quorum, brokers_keep_records, brokers_may_flush), *files),
        moments=(*_moments(is_quorum, brokers_keep_records, brokers_replicate), *moments),
        lasting_states=(
            *CONTROLLER_STATES,
            *(QUORUM_STATES if is_quorum else ()),
            *BROKER_STATES,
            *lasting_states,
        ),
        may_lose={
            DataLoss.UNFLUSHED: unflushed,
            DataLoss.TRUST: unflushed,
            DataLoss.FLUSHED: () if brokers_keep_records else broker_names,
        },
        settings={
            **BROKER_SETTINGS,
            **(QUORUM_SETTINGS if is_quorum else {}),
            **(FLUSH_SETTINGS if brokers_may_flush else {}),
            **(settings or {}),
        },
        fault_ms=int(fault_seconds * 1000),
        may_answer_fatal=may_answer_fatal,
        mix=mix,
        omits=(*omits, *(() if is_quorum else NEEDS_A_QUORUM)),
        of_size=partial(
            cluster_fault_space,
            may_answer_fatal=may_answer_fatal,
            clients=clients,
            apis=apis,
            brokers_keep_records=brokers_keep_records,
            brokers_replicate=brokers_replicate,
            brokers_may_flush=brokers_may_flush,
            combined=combined,
            fault_seconds=fault_seconds,
            settings=settings,
            files=files,
            moments=moments,
            lasting_states=lasting_states,
            mix=mix,
            omits=omits,
        ),
    )


def _links(
    is_quorum: bool, brokers_replicate: bool, *, has_clients: bool
) -> tuple[tuple[str, str], ...]:
    return (
        *(((CONTROLLERS, CONTROLLERS),) if is_quorum else ()),
        (BROKERS, CONTROLLERS),
        *(((BROKERS, BROKERS),) if brokers_replicate else ()),
        *(((CLIENTS, BROKERS),) if has_clients else ()),
    )


def _names(
    controllers: int, brokers: int, combined: int
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of controllers and of brokers, as `ClusterSpec` has them."""
    broker_names = tuple(f"broker-{1 + number}" for number in range(brokers))
    combined_names = broker_names[: min(combined, controllers)]
    others = range(len(combined_names), controllers)
    return (*combined_names, *(f"controller-{101 + number}" for number in others)), broker_names


def _files(is_quorum: bool, keeps: bool, may_flush: bool) -> tuple[Files, ...]:
    return (
        *(QUORUM_FILES if is_quorum else METADATA_FILES),
        *BROKER_FILES,
        *(PARTITION_FILES if keeps else ()),
        *(FLUSHED_FILES if may_flush else ()),
    )


def _moments(is_quorum: bool, keeps: bool, replicates: bool) -> tuple[FaultMoment, ...]:
    return (
        *CONTROLLER_MOMENTS,
        *((*QUORUM_MOMENTS, *SNAPSHOT_MOMENTS) if is_quorum else ()),
        *BROKER_MOMENTS,
        *(PARTITION_MOMENTS if keeps else ()),
        *(REPLICATION_MOMENTS if replicates else ()),
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

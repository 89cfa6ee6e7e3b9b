"""The state of a cluster at one moment, as the HTTP API returns it and the page shows it.

A part that could not be read is empty, and `ClusterSnapshot.missing` has the reason: an API that
the cluster's release does not have, an error, or no event log. Offsets and epochs that do not
exist are None here, not -1.
Source: the responses of Metadata, DescribeCluster, DescribeQuorum (KIP-836), DescribeProducers,
ListTransactions, DescribeTransactions (KIP-664), ListGroups and ListOffsets; KIP-730 for blocks.
"""

from enum import Enum
from typing import Protocol

import msgspec


class NodeCondition(Enum):
    """Whether a node runs."""

    UP = "up"
    DOWN = "down"
    PAUSED = "paused"
    STARTING = "starting"
    UNKNOWN = "unknown"
    """This process did not start it, and it does not answer."""


class FormerIncarnation(msgspec.Struct, frozen=True, kw_only=True):
    """A former life of a node, by its event log: from its first event to its last, in ms since
    1970.
    """

    incarnation: int
    started_ms: int
    ended_ms: int


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A broker, a controller, or both in one process.

    `name` is `broker-1`, `controller-101`. `role` is 'broker', 'controller', 'broker,controller' or
    'zookeeper'. `release` is None for a cluster that kraftsim did not start. `is_fenced`: it is
    a broker that does not serve clients, down or not; None for a controller, and while no broker
    answers. `since_ms` is when the condition began, in ms since 1970, if known.
    """

    name: str
    node_id: int
    role: str
    condition: NodeCondition
    release: str | None = None
    address: str | None = None
    is_active_controller: bool = False
    is_fenced: bool | None = None
    incarnation: int | None = None
    former: tuple[FormerIncarnation, ...] = ()
    since_ms: int | None = None


class PartitionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A partition. `leader` is None without one; `replicas`, `isr` and `offline` are broker ids.

    Offsets are those of the leader: `high_watermark` is the end of what a consumer with
    read_uncommitted reads, `last_stable_offset` of what one with read_committed reads.
    """

    partition: int
    leader: int | None
    leader_epoch: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...] = ()
    log_start_offset: int | None = None
    high_watermark: int | None = None
    last_stable_offset: int | None = None

    @property
    def is_under_replicated(self) -> bool:
        """Whether it has fewer in-sync replicas than replicas."""
        return len(self.isr) < len(self.replicas)


class TopicStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A topic; `topic_id` is hexadecimal, None before metadata had topic ids (KIP-516)."""

    name: str
    is_internal: bool
    partitions: tuple[PartitionStatus, ...]
    topic_id: str | None = None
    min_insync_replicas: int | None = None


class ProducerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the leader of a partition knows of a producer (KIP-664).

    `last_timestamp_ms` is that of its last batch. `current_transaction_start_offset` is that of its
    open transaction, `coordinator_epoch` that of its last transaction marker.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp_ms: int | None = None
    coordinator_epoch: int | None = None
    current_transaction_start_offset: int | None = None


class TransactionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A transactional id at its coordinator.

    `state` is the name of DescribeTransactions: Empty, Ongoing, PrepareCommit, ... `partitions` are
    'topic-number'. `started_ms` is in ms since 1970.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int | None
    state: str
    coordinator: int
    timeout_ms: int | None = None
    started_ms: int | None = None
    partitions: tuple[str, ...] = ()


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A group at its coordinator. `state` is empty before ListGroups v4, `type` before v5."""

    group_id: str
    coordinator: int
    protocol_type: str
    state: str = ""
    type: str = ""
    member_count: int | None = None


class ProducerIdBlockStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The ids `first_producer_id` to `last_producer_id`, both inclusive, allocated to a broker;
    `returned_count` of them were returned to clients so far, `highest_returned` the highest.
    """

    broker_id: int
    first_producer_id: int
    last_producer_id: int
    returned_count: int
    highest_returned: int | None = None
    allocated_by: str = "quorum"


class QuorumReplicaStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A replica of the metadata log as its leader sees it. `lag` is in records, `caught_up_ms` the
    time since it last had everything; None before its first fetch.
    """

    node_id: int
    is_voter: bool
    log_end_offset: int | None
    lag: int | None
    caught_up_ms: int | None = None
    directory_id: str | None = None


class QuorumStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata quorum (KRaft only)."""

    leader: int
    leader_epoch: int
    high_watermark: int
    replicas: tuple[QuorumReplicaStatus, ...]


class RequestFaultEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of requests: `text` in the language of `kraftsim inject`, how many requests matched,
    on how many it took effect, and the last of these in words, latest last.
    """

    number: int
    text: str
    matched: int
    effects: int
    is_over: bool = False
    recent: tuple[str, ...] = ()


class NetworkConditionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that was imposed on links: `link` as 'A>B' or 'A<>B', `condition` in words:
    'cut', 'latency 200 ms', ...
    """

    link: str
    condition: str
    since_ms: int | None = None


class SeenInvariantViolation(msgspec.Struct, frozen=True, kw_only=True):
    """A violation that the live checks found: the rule, its source, and the events that show it, as
    ids NODE.INCARNATION.N. `t_ns` is the time of the last of them in the run.
    """

    invariant: str
    rule: str
    source: str
    message: str
    witnesses: tuple[str, ...]
    t_ns: int


class LiveCheckStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the invariants say so far.

    `checked` are those that have examined an event, `idle` those that wait for a first one.
    `late_count`: events that came after later ones had been checked. The checks of this process
    are then no proof: `kraftsim analyze` is.
    """

    violations: tuple[SeenInvariantViolation, ...]
    violation_count: int
    checked: tuple[str, ...]
    idle: tuple[str, ...]
    event_count: int
    behind_ms: int | None
    late_count: int = 0
    unreadable_count: int = 0


class VerbStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A verb of control and whether this cluster has it; `reason` says why not."""

    verb: str
    is_possible: bool
    reason: str = ""


class ClusterSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster at `taken_ms` (ms since 1970); reading it took `took_ms`.

    `missing` has the name of each field that could not be read, as a whole or in part, and why.
    `controller` is the active controller. `verbs` are what can be done to this cluster.
    `unread_bytes` of the event logs are still to be read: what comes from them is that far behind.
    """

    taken_ms: int
    took_ms: float
    name: str
    bootstrap: str
    cluster_id: str | None = None
    controller: int | None = None
    metadata_version_level: int | None = None
    nodes: tuple[NodeStatus, ...] = ()
    topics: tuple[TopicStatus, ...] = ()
    producers: tuple[ProducerStatus, ...] = ()
    transactions: tuple[TransactionStatus, ...] = ()
    groups: tuple[GroupStatus, ...] = ()
    blocks: tuple[ProducerIdBlockStatus, ...] = ()
    quorum: QuorumStatus | None = None
    request_faults: tuple[RequestFaultEntry, ...] = ()
    network: tuple[NetworkConditionEntry, ...] = ()
    checks: LiveCheckStatus | None = None
    verbs: tuple[VerbStatus, ...] = ()
    unread_bytes: int = 0
    missing: dict[str, str] = {}


class ControlledState(Protocol):
    """What only the process that controls a cluster knows; `SnapshotReader` asks it for each
    snapshot. The methods must not block.
    """

    def nodes(self) -> tuple[NodeStatus, ...]:
        """Return the nodes and their condition; () if this process started none."""
        ...

    def request_faults(self) -> tuple[RequestFaultEntry, ...]:
        """Return the faults of requests that wait, and those that are over, oldest first."""
        ...

    def network(self) -> tuple[NetworkConditionEntry, ...]:
        """Return the conditions of links."""
        ...

    def verbs(self) -> tuple[VerbStatus, ...]:
        """Return all verbs of control, possible or not."""
        ...

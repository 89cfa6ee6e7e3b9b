"""The group coordinator: the groups of the `__consumer_offsets` partitions that this broker leads,
loaded on becoming leader.

Source: kafka.coordinator.group.{GroupCoordinator, GroupMetadataManager},
kafka.server.metadata.BrokerMetadataPublisher.updateCoordinator.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from kraftsim.groups.coordinated_partition import CoordinatedPartition
from kraftsim.groups.coordinator_log import CoordinatorLog
from kraftsim.groups.events import GroupsLoaded, GroupsUnloaded
from kraftsim.groups.rules_group_configs import NO_CONFIGS_OF_GROUPS, GroupConfigs
from kraftsim.groups.rules_shard import GroupShard
from kraftsim.groups.rules_timing import (
    SHARE_INITIALIZE_RETRY_MS,
    SHARE_MAX_SIZE,
    GroupSettings,
    partition_of,
)
from kraftsim.groups.rules_topic_hashes import hash_of_topic
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_topic_names import GROUP_METADATA
from kraftsim.partitions.hosted_partition import HostedPartition, read_back
from kraftsim.partitions.partitions import PartitionKey, Partitions
from kraftsim.server.config import NodeConfig
from kraftsim.server.outbound import VersionRange
from kraftsim.server.purgatory import Purgatory
from kraftsim.server.serving_broker import ImageBroker
from kraftsim.server.shell import NodeShell
from kraftsim.share_groups.persister import Persister
from kraftsim.world.interface import YieldPoint
from protocol.errors import ErrorCode
from protocol.records.record import Compression
from protocol.uuids import uuid_text

if TYPE_CHECKING:
    from kraftsim.groups.share_partition_states import SharePartitionStates
    from kraftsim.groups.streams_topics import StreamsTopicCreation

# --------------------------------------------------------------------------------------------------
# The topics of the cluster as the group coordinator sees them: a view of the broker's current
# metadata image.


class KnownTopics:
    """`image` returns the current metadata image.

    The hash of a topic is kept until the topic changes: a new rack of a broker changes it with the
    next change of a partition. In Kafka: topicHashCache of GroupMetadataManager.
    """

    def __init__(self, image: Callable[[], MetadataImage]) -> None:
        self._image = image
        self._hashes: dict[str, tuple[bytes, int, int]] = {}
        self._most_hashes = FEW_HASHES

    @property
    def version(self) -> int:
        """The last applied offset of the metadata log."""
        return self._image().highest_offset

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Return id and partition count of a topic; None if it does not exist."""
        topic = self._image().topic(name)
        return None if topic is None else (topic.topic_id, len(topic.partitions))

    def hash_of(self, name: str) -> int | None:
        """Return the hash of a topic; None if it does not exist."""
        image = self._image()
        topic = image.topic(name)
        if topic is None:
            return None
        known = self._hashes.get(name)
        if known is not None and known[:2] == (topic.topic_id, topic.change_count):
            return known[2]
        racks = [
            [
                found.rack
                for broker_id in topic.partitions[number].replicas
                if (found := image.broker(broker_id)) is not None and found.rack is not None
            ]
            for number in range(len(topic.partitions))
        ]
        hashed = hash_of_topic(topic.topic_id, name, racks)
        self._hashes[name] = topic.topic_id, topic.change_count, hashed
        if len(self._hashes) > self._most_hashes:
            self._forget_deleted()
        return hashed

    def _forget_deleted(self) -> None:
        image = self._image()
        self._hashes = {
            name: kept for name, kept in self._hashes.items() if image.topic(name) is not None
        }
        self._most_hashes = max(FEW_HASHES, 2 * len(self._hashes))

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic; None if it does not exist."""
        topic = self._image().topic_by_id(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        """Return the names of all topics, sorted."""
        return (topic.name for topic in self._image().topics())


FEW_HASHES: Final = 1000
UUID_BYTES = 16
GROUP_OPERATIONS: Final = 0b1_0100_1000
"""Read, delete, describe."""
GROUP_OPERATIONS_WITH_CONFIGS: Final = GROUP_OPERATIONS | 0b1100_0000_0000
"""The same, and describe and alter configurations (since 4.0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupParts:
    """What a broker has for share groups: whether they are enabled, and its client of the share
    coordinator. `own_versions` are the API versions that it uses to other brokers.
    """

    is_enabled: Callable[[], bool]
    persister: Callable[[], Persister]
    own_versions: Mapping[int, VersionRange]


class GroupCoordinator:
    """Loaded partitions by number.

    `on_partition_changed` keeps them consistent with the leadership.
    """

    def __init__(
        self,
        shell: NodeShell,
        image: Callable[[], MetadataImage],
        partitions: Partitions,
        produces: Purgatory[PartitionKey],
        fetches: Purgatory[PartitionKey],
        shard_class: type[GroupShard],
        settings: GroupSettings,
        serves_consumers: Callable[[], bool],
        serves_streams: Callable[[], bool],
        share_groups: "ShareGroupParts | None" = None,
    ) -> None:
        self._serves_consumers = serves_consumers
        self._serves_streams = serves_streams
        self._share_groups = share_groups
        self._share_states: SharePartitionStates | None = None
        self._streams_topics: StreamsTopicCreation | None = None
        self._shell = shell
        self._shard_class = shard_class
        self._world = shell.world
        self._config = shell.config
        self._image = image
        self._hosted = partitions
        self._settings = settings
        self._log = CoordinatorLog(
            partitions,
            produces,
            fetches,
            shell.world.clock,
            timeout_ms=shell.config.offsets_commit_timeout_ms,
            compression=Compression(shell.config.offsets_topic_compression_codec),
        )
        self._member_ids = shell.world.random("member ids")
        self._partitions: dict[int, CoordinatedPartition] = {}

    # Look-up
    # ----------------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that a group belongs to."""
        topic = self._image().topic(GROUP_METADATA)
        return partition_of(
            group_id,
            self._config.offsets_topic_num_partitions if topic is None else len(topic.partitions),
        )

    def coordinated(
        self, group_id: str, *, may_be_empty: bool = False
    ) -> CoordinatedPartition | ErrorCode:
        """Return the partition of a group, or INVALID_GROUP_ID, NOT_COORDINATOR or
        COORDINATOR_LOAD_IN_PROGRESS.
        """
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        found = self._partitions.get(self.partition_of(group_id))
        if found is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if found.is_loading else found

    @property
    def serves_consumers(self) -> bool:
        """Whether consumer groups are enabled (KIP-848)."""
        return self._serves_consumers()

    @property
    def operations(self) -> int:
        """The operations on a group as bits: every one is authorized without an authorizer
        (AclEntry.supportedOperations).
        """
        has_configs = bool(self._settings.configs.definitions.configs)
        return GROUP_OPERATIONS_WITH_CONFIGS if has_configs else GROUP_OPERATIONS

    @property
    def serves_shares(self) -> bool:
        """Whether share groups are enabled (KIP-932): by share.version 1."""
        return self._share_groups is not None and self._share_groups.is_enabled()

    @property
    def share_states(self) -> "SharePartitionStates":
        """The states of share-partitions; imported when a share group is first asked for."""
        if self._share_states is None:
            from kraftsim.groups.share_partition_states import SharePartitionStates

            assert self._share_groups is not None, "share groups are served"
            self._share_states = SharePartitionStates(
                self._shell,
                self._image,
                self._share_groups.persister(),
                own_versions=self._share_groups.own_versions,
            )
        return self._share_states

    @property
    def serves_streams(self) -> bool:
        """Whether streams groups are enabled (KIP-1071)."""
        return self._serves_streams()

    @property
    def streams_topics(self) -> "StreamsTopicCreation":
        """Creates the internal topics of streams groups; made when it is first needed."""
        if self._streams_topics is None:
            from kraftsim.groups.streams_topics import StreamsTopicCreation

            self._streams_topics = StreamsTopicCreation(
                self._world.clock, self._config.request_timeout_ms
            )
        return self._streams_topics

    @property
    def configs(self) -> GroupConfigs:
        """The configurations of single groups."""
        return self._settings.configs

    @property
    def consumer_assignors(self) -> tuple[str, ...]:
        """The names of the assignors; the first one is used if no member prefers another."""
        return self._settings.consumer_assignors

    def fresh_consumer_id(self) -> str:
        """Return a new member id for a consumer group."""
        return uuid_text(self._member_ids.randbytes(UUID_BYTES))

    def all(self) -> Iterator[CoordinatedPartition]:
        """Yield every partition for which this broker is coordinator, by number."""
        for number in sorted(self._partitions):
            yield self._partitions[number]

    def fresh_member_id(self) -> str:
        """Return the random suffix of a member id."""
        drawn = bytearray(self._member_ids.randbytes(16))
        drawn[6] = drawn[6] & 0x0F | 0x40  # a random one,
        drawn[8] = drawn[8] & 0x3F | 0x80  # in the form of RFC 4122, as java.util.UUID draws them
        text = drawn.hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    # Loading and unloading
    # ----------------------------------------------------------------------------------------------

    def begin_upkeep(self) -> None:
        """Start the periodic expiration of offsets."""
        self._shell.tasks.spawn(self._expire(), "offset expiration")

    def on_partition_changed(self, key: PartitionKey) -> None:
        """Load or unload a partition if this broker became or ceased to be its leader."""
        topic, number = key
        if topic != GROUP_METADATA:
            return
        hosted = self._hosted.find(topic, number)
        known = self._partitions.get(number)
        if known is not None and (hosted is not known.hosted or not hosted.replica.is_leader):
            del self._partitions[number]
            known.end()
            self._world.emit(GroupsUnloaded(partition=number))
            known = None
        if known is None and hosted is not None and hosted.replica.is_leader:
            self._begin(number, hosted)

    def _begin(self, number: int, hosted: HostedPartition) -> None:
        shard = self._shard_class(
            self._settings, number, self._world.emit, KnownTopics(self._image)
        )
        led = CoordinatedPartition(
            hosted,
            shard,
            self._log,
            self._world.clock,
            lambda: self._shell.settle_soon(lambda: self._reload(led)),
        )
        self._partitions[number] = led
        self._shell.tasks.spawn(self._load(number, led), f"groups of {GROUP_METADATA}-{number}")

    def _reload(self, former: CoordinatedPartition) -> None:
        """Reload the groups of a partition: a change could not be written to the log. If that has
        failed the node, its last log directory, nothing is loaded any more.
        """
        if self._shell.is_dead:
            return
        number = former.hosted.partition
        if self._partitions.get(number) is former and former.hosted.replica.is_leader:
            former.end()
            self._begin(number, former.hosted)

    def on_marker(
        self, partition: int, producer_id: int, producer_epoch: int, is_commit: bool, offset: int
    ) -> None:
        """A transaction marker is on all in-sync replicas: pending offset commits are materialized
        on commit and dropped on abort.
        """
        led = self._partitions.get(partition)
        if led is not None:
            led.end_transaction(producer_id, producer_epoch, offset, is_commit=is_commit)

    def on_topics_deleted(self) -> None:
        """Delete the offsets of deleted topics."""
        image = self._image()
        for led in self.all():
            if not led.is_loading:
                led.settle(
                    led.shard.forget_topics(lambda topic: image.topic(topic) is not None, led.now())
                )

    def close(self) -> None:
        """Cancel all timers: the node shuts down."""
        for led in self.all():
            led.close()
        if self._share_states is not None:
            self._share_states.close()

    def abort(self) -> None:
        """Close every connection at once, like a killed process."""
        if self._share_states is not None:
            self._share_states.abort()

    async def _load(self, number: int, led: CoordinatedPartition) -> None:
        """Replay the log from its start; the partition's groups are available afterwards."""
        await self._world.yield_point(YieldPoint.GROUP_COORDINATOR_ELECTED)
        try:
            offset = await read_back(
                led.hosted,
                buffer_size=self._config.offsets_load_buffer_size,
                is_wanted=lambda: self._partitions.get(number) is led,
                replay=led.shard.replay,
            )
        except OSError as failure:
            self._hosted.disk_failed(led.hosted.log.directory, "read", failure)
            return
        if self._partitions.get(number) is led:
            self._world.emit(
                GroupsLoaded(
                    partition=number, group_count=len(led.shard.groups), next_offset=offset
                )
            )
            led.begin()

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            for led in self.all():
                if not led.is_loading:
                    led.settle(led.shard.expire_offsets(led.now()))


class GroupsBroker(Protocol):
    """A broker with a group coordinator."""

    @property
    def groups(self) -> GroupCoordinator:
        """The groups that it coordinates."""
        ...


class GroupTopicsBroker(GroupsBroker, ImageBroker, Protocol):
    """The same, where requests name topics."""


# --------------------------------------------------------------------------------------------------
# The group coordinator's configuration: the broker's properties, with the defaults of the emulated
# release

CONSUMER: Final = "consumer"
STREAMS: Final = "streams"
BIDIRECTIONAL: Final = "bidirectional"
DISABLED: Final = "disabled"
DELAYED_MS: Final = 1000
FIRST_EPOCH_WITH_DELAY: Final = 1


class GroupParts(Protocol):
    """What the release decides for groups."""

    @property
    def has_consumer_groups(self) -> bool:
        """Whether consumer groups (KIP-848) are enabled by default."""
        ...

    @property
    def delays_assignments(self) -> bool:
        """Whether target assignments are computed at intervals."""
        ...

    @property
    def share_groups_first(self) -> bool:
        """Whether DeleteGroups looks for share groups first."""
        ...

    @property
    def members_drop_unsubscribed(self) -> bool:
        """Whether a member gives up at once what it does not subscribe to any longer."""
        ...

    @property
    def members_may_rejoin(self) -> bool:
        """Whether a member may rejoin without having left."""
        ...

    @property
    def members_take_back(self) -> bool:
        """Whether a revoked partition may return to its member in the same step."""
        ...

    @property
    def streams_have_roles(self) -> bool:
        """Whether members of streams groups are static, report offsets and change roles."""
        ...

    @property
    def keeps_assignment_epochs(self) -> bool:
        """Whether members may commit since the epoch in which a partition was assigned."""
        ...

    @property
    def share_offsets_make_groups(self) -> bool:
        """Whether AlterShareGroupOffsets creates an unknown share group."""
        ...

    @property
    def settles_share_groups(self) -> bool:
        """Whether the target of a share group is for its epoch once its last member has left."""
        ...

    @property
    def reads_added_share_partitions_whole(self) -> bool:
        """Whether share groups read a partition that is added to a topic from its start."""
        ...


def group_settings(
    config: NodeConfig, parts: GroupParts, configs: GroupConfigs = NO_CONFIGS_OF_GROUPS
) -> GroupSettings:
    """Return the effective settings; `configs` are the configurations of single groups."""
    interval_ms = config.group_consumer_assignment_interval_ms
    return GroupSettings(
        configs=configs,
        initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
        min_session_timeout_ms=config.group_min_session_timeout_ms,
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        max_size=config.group_max_size,
        offset_metadata_max_bytes=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        consumer_session_timeout_ms=config.group_consumer_session_timeout_ms,
        consumer_heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
        consumer_max_size=config.group_consumer_max_size,
        consumer_assignors=tuple(
            name for name in config.group_consumer_assignors if "." not in name
        )
        or ("uniform", "range"),
        consumer_assignment_interval_ms=(DELAYED_MS if interval_ms is None else interval_ms)
        if parts.delays_assignments
        else 0,
        consumer_first_epoch=FIRST_EPOCH_WITH_DELAY if parts.delays_assignments else 0,
        consumer_settles_empty=parts.delays_assignments,
        consumer_may_rejoin=parts.members_may_rejoin,
        consumer_takes_back=parts.members_take_back,
        consumer_keeps_assignment_epochs=parts.keeps_assignment_epochs,
        consumer_migration_policy=config.group_consumer_migration_policy
        or (BIDIRECTIONAL if parts.has_consumer_groups else DISABLED),
        makes_group_unjudged=not parts.has_consumer_groups,
        consumer_drops_unsubscribed=parts.members_drop_unsubscribed,
        share_groups_first=parts.share_groups_first,
        share_max_size=configs.setting_number("group.share.max.size", SHARE_MAX_SIZE),
        share_initialize_retry_ms=configs.setting_number(
            "group.share.initialize.retry.interval.ms", SHARE_INITIALIZE_RETRY_MS
        ),
        share_alters_unknown=parts.share_offsets_make_groups,
        share_settles_empty=parts.settles_share_groups,
        share_reads_added_whole=parts.reads_added_share_partitions_whole,
        delays_assignments=parts.delays_assignments,
        streams_assigns_at_intervals=parts.delays_assignments,
        streams_have_roles=parts.streams_have_roles,
        has_coordinator_runtime=parts.has_consumer_groups or may_serve_consumers(config, parts),
    )


def may_serve_streams(config: NodeConfig) -> bool:
    """Return whether the configuration enables streams groups: it does unless it names only
    others.
    """
    protocols = config.group_coordinator_rebalance_protocols
    return STREAMS in protocols if protocols else True


def may_serve_consumers(config: NodeConfig, parts: GroupParts) -> bool:
    """Return whether the configuration enables consumer groups: by default since 4.0, only if
    explicitly enabled before.
    """
    protocols = config.group_coordinator_rebalance_protocols
    return CONSUMER in protocols if protocols else parts.has_consumer_groups

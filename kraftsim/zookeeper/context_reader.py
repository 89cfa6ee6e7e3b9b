"""Reads and watches of a ZooKeeper-mode controller: everything at its start, later only what has
changed.

Source: kafka.controller.KafkaController (initializeControllerContext, process*),
kafka.zk.KafkaZkClient.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kraftsim.metadata.rules_topic_table import Topic
from kraftsim.metadata.rules_versions import ProtocolVersion
from kraftsim.world.interface import World
from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.events import ZnodeNotUnderstood
from kraftsim.zookeeper.metadata_writer import ZnodeWriter
from kraftsim.zookeeper.rules_control_requests import is_derived
from kraftsim.zookeeper.rules_znode_writes import WriteKind, ZnodeWrite, read_at, readable, topic_of
from kraftsim.zookeeper.rules_znodes import (
    broker_record,
    not_made_yet,
    partition_record,
    records_of_znodes,
    topic_records,
)
from kraftsim.zookeeper.znode_writer import FencedWrites, ZnodeReader
from protocol.metadata.registrations import RegisterBrokerRecord
from protocol.metadata.settings import FeatureLevelRecord
from protocol.metadata.topics import PartitionRecord, RemoveTopicRecord, TopicRecord
from protocol.schema import Message
from protocol.zookeeper.kafka_znodes import (
    BROKER_IDS,
    DELETE_TOPICS,
    FEATURE,
    ISR_CHANGES,
    LOG_DIRECTORY_EVENTS,
    PREFERRED_REPLICA_ELECTION,
    PRODUCER_ID_BLOCK,
    REASSIGN_PARTITIONS,
    TOPICS,
    FeatureZnode,
    TopicZnode,
    broker_path,
    config_path,
    parse_log_directory_event,
    parse_partitions,
    state_path,
    topic_path,
)
from protocol.zookeeper.op_codes import ZookeeperError

ID_BYTES: Final = 16
FEATURES_WITHOUT_LOWEST: Final = "3.3-IV0"


class ContextReader:
    """All methods raise ZookeeperRefused and MalformedMessage."""

    def __init__(
        self,
        world: World,
        client: ZookeeperClient,
        protocol: ProtocolVersion,
        writes: FencedWrites,
        writer: ZnodeWriter,
    ) -> None:
        self._world = world
        self._client = client
        self._protocol = protocol
        self._writes = writes
        self._writer = writer
        self._watched: dict[str, None] = {}
        """Topics with a watch on their znode."""

    @property
    def _reader(self) -> ZnodeReader:
        return ZnodeReader(self._client)

    async def prepare(self) -> None:
        """Set up the feature znode, set the watches, and delete notifications for earlier
        controllers.
        """
        await self._set_up_features()
        for path in (BROKER_IDS, TOPICS, DELETE_TOPICS):
            await self._client.children(path, watch=True)
        for path in (LOG_DIRECTORY_EVENTS, ISR_CHANGES):
            await self._forget(await self._names(path))
        for path in (PREFERRED_REPLICA_ELECTION, REASSIGN_PARTITIONS):
            await self._client.exists(path, watch=True)

    async def brokers(self, broker_ids: Iterable[int] | None = None) -> list[RegisterBrokerRecord]:
        """Return the registered brokers, all or some, and watch them."""
        wanted = (
            sorted(map(int, (await self._client.children(BROKER_IDS, watch=True))[0]))
            if broker_ids is None
            else list(broker_ids)
        )
        found = []
        for broker_id in wanted:
            try:
                data, stat = await self._client.get(broker_path(broker_id), watch=True)
            except ZookeeperRefused as refused:
                if refused.error != ZookeeperError.NO_NODE:
                    raise
                continue
            with read_at(broker_path(broker_id)):
                found.append(broker_record(broker_id, data or b"", stat))
        return found

    async def everything(self) -> list[Message]:
        """Return the metadata of the cluster except brokers.

        Assigns topic ids to topics without one, if this protocol version has them.
        """
        found = await self._reader.everything()
        found.pop(PRODUCER_ID_BLOCK, None)  # read when a block is allocated
        znodes, unreadable = readable(found)
        for path, reason in unreadable:
            self._world.emit(ZnodeNotUnderstood(path=path, reason=reason))
            if path.startswith(f"{TOPICS}/"):
                await self._watch(topic_of(path))
                await self._client.exists(path, watch=True)
        drawn = self._world.random("access rules")
        kept = [
            each
            for piece in records_of_znodes(
                znodes, lambda: drawn.randbytes(ID_BYTES), absent_state=not_made_yet
            )
            for each in piece
        ]
        for record in [record for record in kept if isinstance(record, TopicRecord)]:
            await self._watch(record.name)
        if self._protocol.has_topic_ids:
            kept = await self._with_ids(kept)
        return [*kept, *await self._features()]

    async def topic_names(self) -> list[str]:
        """Return the topic names, and watch for changes."""
        names = (await self._client.children(TOPICS, watch=True))[0]
        for name in names:
            await self._watch(name)
        self._watched = {name: None for name in self._watched if name in names}
        return names

    async def _watch(self, name: str) -> None:
        if name in self._watched:
            return
        try:
            await self._client.get(topic_path(name), watch=True)
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.NO_NODE:
                raise
            return  # it was deleted meanwhile
        self._watched[name] = None

    async def topic(self, name: str) -> list[Message]:
        """Return the records of one topic, and watch it."""
        await self._watch(name)
        reader = self._reader
        znodes = {
            **await reader.tree(topic_path(name)),
            **await reader.some([config_path("topics", name)]),
        }
        with read_at(topic_path(name)):
            records = (
                topic_records(znodes, name, absent_state=not_made_yet)
                if topic_path(name) in znodes
                else []
            )
        return await self._with_ids(records) if self._protocol.has_topic_ids else records

    async def partitions(self, topic: Topic) -> list[PartitionRecord]:
        """Return the current partitions of a topic, and watch it."""
        try:
            data, _ = await self._client.get(topic_path(topic.name), watch=True)
        except ZookeeperRefused as refused:
            if refused.error != ZookeeperError.NO_NODE:
                raise
            return []
        with read_at(topic_path(topic.name)):
            found = TopicZnode.parse(data or b"")
            states = await self._reader.some(
                [state_path(topic.name, number) for number in sorted(found.partitions)]
            )
            return [
                partition_record(
                    topic.topic_id,
                    found,
                    number,
                    states.get(state_path(topic.name, number)),
                    not_made_yet,
                )
                for number in sorted(found.partitions)
            ]

    async def reload(self, path: str) -> Sequence[Message]:
        """Return the records of a znode that another node has written."""
        name = path.removeprefix(f"{TOPICS}/").partition("/")[0]
        topic = self._writer.state.replication.topics.topic_named(name)
        if not path.startswith(f"{TOPICS}/"):
            return []
        if topic is None:
            return await self.topic(name)
        if await self._client.exists(topic_path(name)) is None:
            return [self.removal(topic)]
        return await self.partitions(topic)

    def removal(self, topic: Topic) -> RemoveTopicRecord:
        """Return the record that removes a topic."""
        return RemoveTopicRecord(topic_id=topic.topic_id)

    async def isr_changes(self) -> list[PartitionRecord]:
        """Return the partitions named in ISR change notifications, and delete the notifications."""
        paths = await self._names(ISR_CHANGES)
        found = []
        for path, (data, _) in (await self._reader.some(paths)).items():
            with read_at(path):
                changed = parse_partitions(data or b"")
            for name, number in changed:
                topic = self._writer.state.replication.topics.topic_named(name)
                if topic is not None:
                    found += [
                        record
                        for record in await self.partitions(topic)
                        if record.partition_id == number
                    ]
        await self._forget(paths)
        return found

    async def directory_events(self) -> list[int]:
        """Return the brokers named in log directory failure notifications, and delete the
        notifications.
        """
        paths = await self._names(LOG_DIRECTORY_EVENTS)
        found = []
        for path, (data, _) in (await self._reader.some(paths)).items():
            with read_at(path):
                found.append(parse_log_directory_event(data or b""))
        await self._forget(paths)
        return sorted(dict.fromkeys(found))

    async def deletions(self) -> list[str]:
        """Return the topics to be deleted, and watch for more."""
        return (await self._client.children(DELETE_TOPICS, watch=True))[0]

    async def asked(self, path: str) -> bytes | None:
        """Return the content of a znode that exists only while it contains a request, and watch
        it.
        """
        if await self._client.exists(path, watch=True) is None:
            return None
        found = await self._reader.some([path])
        return found[path][0] if path in found else None

    async def _names(self, path: str) -> list[str]:
        return [f"{path}/{name}" for name in (await self._client.children(path, watch=True))[0]]

    async def _forget(self, paths: Sequence[str]) -> None:
        if paths:
            await self._writes.carry([ZnodeWrite(kind=WriteKind.DROP, path=path) for path in paths])

    async def _with_ids(self, records: Sequence[Message]) -> list[Message]:
        """Generate ids for topics that have none, and write them."""
        drawn = self._world.random("topic ids")
        ids: dict[bytes, bytes] = {}
        for record in records:
            if isinstance(record, TopicRecord) and is_derived(record.topic_id):
                ids[record.topic_id] = record.topic_id = drawn.randbytes(ID_BYTES)
                data, _ = await self._client.get(topic_path(record.name))
                known = TopicZnode.parse(data or b"")
                text = TopicZnode(
                    partitions=known.partitions,
                    topic_id=record.topic_id,
                    adding_replicas=known.adding_replicas,
                    removing_replicas=known.removing_replicas,
                ).build()
                await self._writes.carry(
                    [ZnodeWrite(kind=WriteKind.SET, path=topic_path(record.name), data=text)]
                )
        names = [record.topic_id for record in records if isinstance(record, TopicRecord)]
        for record in records:
            if isinstance(record, PartitionRecord) and record.topic_id not in names:
                record.topic_id = ids[record.topic_id]
        return list(records)

    async def _features(self) -> list[FeatureLevelRecord]:
        found = await self._reader.some([FEATURE])
        znode = FeatureZnode.parse(found[FEATURE][0] or b"") if FEATURE in found else FeatureZnode()
        return [
            FeatureLevelRecord(name=name, feature_level=level)
            for name, level in sorted(znode.levels.items())
        ]

    async def _set_up_features(self) -> None:
        """Initialise /feature for this protocol version; an upgrade keeps no features, a downgrade
        disables all.

        Source: KIP-584.
        """
        protocol = self._protocol
        version = self._writer.feature_version = (
            2 if protocol.is_at_least(FEATURES_WITHOUT_LOWEST) else 1
        )
        found = await self._reader.some([FEATURE])
        if FEATURE not in found:
            await self._client.create(
                FEATURE,
                FeatureZnode(is_enabled=protocol.has_feature_znode, version=version).build(),
            )
            return
        present = FeatureZnode.parse(found[FEATURE][0] or b"")
        levels = present.levels if protocol.has_feature_znode and present.is_enabled else {}
        wanted = FeatureZnode(levels=levels, is_enabled=protocol.has_feature_znode, version=version)
        if wanted != present:
            await self._client.set(FEATURE, wanted.build())

"""The active controller in ZooKeeper mode: the cluster state it has loaded, its decisions on broker
changes, and the requests it sends.

It loads everything first, sends the brokers each other's endpoints, removes offline brokers from
ISRs, and elects missing leaders. Then it processes ZooKeeper watch events one at a time, and
requests.
Source: kafka.controller.KafkaController.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from kraftsim.metadata.rules_brokers import controlled_shutdown_record
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_partition_changes import partition_changed_event
from kraftsim.metadata.rules_registrations import (
    BrokerRegistration,
    PartitionRegistration,
    partition_record,
)
from kraftsim.metadata.rules_topic_table import PartitionKey, Topic
from kraftsim.metadata.rules_versions import ProtocolVersion
from kraftsim.producer_ids.zookeeper import ControllerBlocks
from kraftsim.raft.rules_voters import Address
from kraftsim.server.client_quotas import MutationQuotas
from kraftsim.server.config import NodeConfig
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import World, YieldPoint
from kraftsim.zookeeper.client import ZookeeperClient
from kraftsim.zookeeper.context_reader import ContextReader
from kraftsim.zookeeper.events import (
    BrokerJoined,
    BrokerLeft,
    ZnodeNotUnderstood,
    ZookeeperControllerReady,
)
from kraftsim.zookeeper.metadata_writer import ZnodeWriter
from kraftsim.zookeeper.propagator import (
    BrokerChannelEndpoint,
    ControllerChannelManager,
    ControlResponse,
)
from kraftsim.zookeeper.reassignments import Reassignments
from kraftsim.zookeeper.rules_control_requests import (
    ControlRequest,
    Sender,
    reported_topic_id,
    request_versions,
)
from kraftsim.zookeeper.rules_partitions import (
    NOT_MADE,
    elected_first,
    elected_for_shutdown,
    elected_of,
    elected_offline,
    without,
)
from kraftsim.zookeeper.rules_propagation import ZookeeperPropagation
from kraftsim.zookeeper.topic_deletions import TopicDeletions
from kraftsim.zookeeper.znode_writer import FencedWrites
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.k05_stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.metadata.registrations import RegisterBrokerRecord, UnregisterBrokerRecord
from protocol.schema import Message

UNCLEAN_ELECTION_CONFIG: Final = "unclean.leader.election.enable"
FIRST_REBALANCE_MS: Final = 5000
LEADER_IMBALANCE_PERCENT: Final = 10
"""Kafka's leader.imbalance.per.broker.percentage: the tolerated share of a broker's preferred
partitions that other brokers lead.
"""


class ContextOwner(Protocol):
    """The controller component of a broker, which is elected and resigns."""

    @property
    def world(self) -> World:
        """Clock, random numbers and event log."""
        ...

    @property
    def config(self) -> NodeConfig:
        """The properties of the node."""
        ...

    @property
    def shell(self) -> NodeShell:
        """Tasks and connections of the node."""
        ...

    @property
    def protocol(self) -> ProtocolVersion:
        """inter.broker.protocol.version."""
        ...

    @property
    def image(self) -> MetadataImage:
        """The metadata image of the broker."""
        ...

    def new_blocks(self, client: ZookeeperClient, writes: FencedWrites) -> ControllerBlocks:
        """Return the allocator of producer-id blocks of one controller epoch."""
        ...

    def new_state(self) -> ControllerState:
        """Return an empty cluster state."""
        ...

    async def guarded(
        self, context: "ControllerContext", work: Callable[[], Awaitable[None]]
    ) -> None:
        """Run work of the active controller; resign if another controller was elected meanwhile."""
        ...


class ControllerContext:
    """The controller context of one controller epoch.

    Request handlers use its public members as they use those of a KRaft controller.
    """

    def __init__(
        self,
        controller: ContextOwner,
        client: ZookeeperClient,
        *,
        controller_epoch: int,
        epoch_version: int,
    ) -> None:
        self.controller = controller
        self.world = controller.world
        self.config = controller.config
        self.shell = controller.shell
        self.client = client
        self.protocol = controller.protocol
        self.controller_epoch = controller_epoch
        self.is_active = False
        self.writes = FencedWrites(client, epoch_version)
        self.blocks = controller.new_blocks(client, self.writes)
        self.metadata_writer = ZnodeWriter(
            self.world,
            controller.new_state(),
            controller_epoch=controller_epoch,
            carry=self.writes.carry,
            on_applied=self._on_applied,
        )
        self.metadata_writer.has_topic_ids = self.protocol.has_topic_ids
        self.mutations = MutationQuotas(
            self.config, self.world.clock, lambda: self.metadata_writer.state.registries
        )
        self.reading = ContextReader(
            self.world, client, self.protocol, self.writes, self.metadata_writer
        )
        self.metadata_writer.reload = self.reading.reload
        self.metadata_writer.on_conflict = lambda: self.queue_event("conflict")
        self.offline_replicas: dict[int, dict[PartitionKey, None]] = {}
        """Broker -> the partitions that it cannot host because a log directory failed."""
        self.deletions = TopicDeletions(
            self.config,
            self.metadata_writer,
            self.writes,
            self.reading,
            send=self.send_deletions,
            resend=self.resend_deletions,
        )
        self.moves = Reassignments(
            self, self.metadata_writer, self.writes, self.reading, self.deletions
        )
        self._propagation = ZookeeperPropagation(
            Sender(
                controller_id=self.config.node_id,
                controller_epoch=controller_epoch,
                is_kraft=False,
                listener=self.config.inter_broker_listener_name,
                versions=request_versions(self.protocol.name),
                decided_in=self._decided_in,
                reported_topic_id=lambda topic_id, name: reported_topic_id(topic_id),
            )
        )
        self._propagator = ControllerChannelManager(self.shell, self._on_response)
        self._tasks: list[asyncio.Task[None]] = []
        self._events: dict[tuple[str, str], None] = {}
        self._has_events = asyncio.Event()

    # Start and stop
    # ----------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Load everything and start making decisions.

        Raises ControllerMoved, ZookeeperRefused, MalformedMessage.
        """
        await self.reading.prepare()
        self.metadata_writer.learn(await self.reading.brokers())
        self.metadata_writer.learn(await self.reading.everything())
        self.is_active = True
        self._spawn(self.metadata_writer.run, "controller-writes")
        self._update_channels()
        self._propagator.send(self._propagation.begin(self.metadata_writer.image))
        self.metadata_writer.image.take_changes()
        self._remove_absent()
        self.elect_offline()
        state = self.metadata_writer.state
        self.world.emit(
            ZookeeperControllerReady(
                controller_epoch=self.controller_epoch,
                broker_count=sum(1 for _ in state.cluster.brokers()),
                topic_count=sum(1 for _ in state.replication.topics.topics()),
            )
        )
        self._spawn(self._process_events, "controller-events")
        if self.config.auto_leader_rebalance_enable:
            self._spawn(self._rebalance, "controller-rebalance")
        for event in ("reassignments", "moves", "deletions", "preferred"):
            self.queue_event(event)

    def end(self) -> None:
        """Stop making decisions; pending requests are answered with NOT_CONTROLLER."""
        self.is_active = False
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self._propagator.close()
        self.deletions.close()
        self.metadata_writer.give_up()

    def abort(self) -> None:
        """Stop immediately, as a killed process would."""
        self.is_active = False
        self._propagator.abort()

    def queue_event(self, event: str, about: str = "") -> None:
        """Queue an event; equal events that are not processed yet are queued once."""
        self._events[event, about] = None
        self._has_events.set()

    async def _process_events(self) -> None:
        act: dict[str, Callable[[str], Awaitable[object]]] = {
            "brokers": self._process_broker_change,
            "broker": self._process_broker_update,
            "topics": self._process_topic_change,
            "topic": self._process_partition_change,
            "deletions": self.deletions.look,
            "reassignments": self.moves.process_reassignment_znode,
            "moves": self.moves.resume,
            "preferred": self.moves.process_election_znode,
            "isr-changes": self._process_isr_changes,
            "directories": self._process_directories,
            "conflict": self._retry_reverted,
        }
        while True:
            while self._events:
                event, about = next(iter(self._events))
                del self._events[event, about]
                try:
                    await act[event](about)
                except MalformedMessage as malformed:  # the previous state stays in effect
                    self._not_understood(malformed)
                await self.world.yield_point(YieldPoint.ZOOKEEPER_CHANGE_READ)
            self._has_events.clear()
            await self._has_events.wait()

    def _not_understood(self, malformed: MalformedMessage) -> None:
        self.world.emit(ZnodeNotUnderstood(path=malformed.path, reason=malformed.reason))

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        self._tasks.append(
            self.shell.tasks.spawn(self.controller.guarded(self, work), name, lasts=True)
        )

    # Partition state
    # ----------------------------------------------------------------------------------------------

    def partition(self, key: PartitionKey) -> PartitionRegistration | None:
        """Return a partition."""
        return self.metadata_writer.state.replication.topics.partition(key)

    def topic_of(self, key: PartitionKey) -> Topic:
        """Return the topic of an existing partition."""
        topic = self.metadata_writer.state.replication.topics.topic(key[0])
        assert topic is not None, "a partition belongs to a topic"
        return topic

    def is_registered(self, broker_id: int, key: PartitionKey) -> bool:
        """Return whether a broker is registered and can host a partition, even if it is shutting
        down.
        """
        return self.metadata_writer.state.cluster.broker(
            broker_id
        ) is not None and key not in self.offline_replicas.get(broker_id, ())

    def is_online(self, broker_id: int, key: PartitionKey) -> bool:
        """Return whether a broker may lead a partition."""
        return self.metadata_writer.state.cluster.is_active(broker_id) and self.is_registered(
            broker_id, key
        )

    def is_leaving(self, broker_id: int) -> bool:
        """Return whether a broker is in controlled shutdown."""
        broker = self.metadata_writer.state.cluster.broker(broker_id)
        return broker is not None and broker.in_controlled_shutdown

    def is_being_deleted(self, key: PartitionKey) -> bool:
        """Return whether the topic of a partition is queued for deletion."""
        return self.topic_of(key).name in self.deletions.queued

    def allows_unclean(self, key: PartitionKey) -> bool:
        """Return whether unclean leader election is enabled for a partition."""
        return (
            self.metadata_writer.state.configs.effective_topic_config(
                self.topic_of(key).name, UNCLEAN_ELECTION_CONFIG
            ).lower()
            == "true"
        )

    # Changing partitions
    # ----------------------------------------------------------------------------------------------

    def change(
        self,
        steps: Iterable[tuple[PartitionKey, PartitionRegistration | None]],
        on_committed: Callable[[], None] | None = None,
    ) -> None:
        """Change partitions to the given states; None: unchanged."""
        records: list[Message] = []
        facts = []
        for key, after in steps:
            if after is not None:
                records.append(
                    partition_record(
                        *key, after, self.metadata_writer.state.features.metadata_level
                    )
                )
                before = self.partition(key)
                if (
                    before is None or before.partition_epoch != after.partition_epoch
                ):  # otherwise only its replicas changed
                    facts.append(partition_changed_event(key, self.topic_of(key).name, after))
        if records or on_committed is not None:
            self.metadata_writer.write(
                records, tuple(facts), None if on_committed is None else lambda _: on_committed()
            )

    def elect_offline(self, keys: Iterable[PartitionKey] | None = None) -> None:
        """Elect leaders for partitions whose leader is missing or offline."""
        wanted = (
            [key for key, _ in self.metadata_writer.state.replication.partitions()]
            if keys is None
            else list(keys)
        )
        self.change((key, self._elected(key)) for key in wanted if not self.is_being_deleted(key))

    def _elected(self, key: PartitionKey) -> PartitionRegistration | None:
        partition = self.partition(key)
        if partition is None or (partition.has_leader and self.is_online(partition.leader, key)):
            return None
        if partition.partition_epoch == NOT_MADE:
            return elected_first(partition, lambda replica: self.is_online(replica, key))
        return elected_offline(
            partition,
            lambda replica: self.is_online(replica, key),
            allows_unclean=self.allows_unclean(key),
            marks_recovery=self.protocol.has_leader_recovery,
        )

    def elect_preferred(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, bool]:
        """Elect the preferred replicas of partitions in one write, and return which of them are
        leaders now.
        """
        elected: dict[PartitionKey, PartitionRegistration | None] = {}
        for key in keys:
            partition = self.partition(key)
            assert partition is not None, "elections are for existing partitions"
            elected[key] = elected_of(
                partition, partition.replicas[:1], partial(self._is_online_for, key)
            )
        self.change(elected.items())
        return {key: after is not None for key, after in elected.items()}

    def elect_uncleanly(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, bool]:
        """Elect leaders uncleanly in one write, and return which partitions have a leader now."""
        elected: dict[PartitionKey, PartitionRegistration | None] = {}
        for key in keys:
            partition = self.partition(key)
            assert partition is not None, "elections are for existing partitions"
            is_online = partial(self._is_online_for, key)
            elected[key] = elected_offline(
                partition,
                is_online,
                allows_unclean=True,
                marks_recovery=self.protocol.has_leader_recovery,
            )
        self.change(elected.items())
        return {key: after is not None for key, after in elected.items()}

    def _is_online_for(self, key: PartitionKey, broker_id: int) -> bool:
        return self.is_online(broker_id, key)

    async def _retry_reverted(self, _: str) -> None:
        """Repeat decisions that were reverted because a leader had written its ISR concurrently."""
        self.elect_offline()
        self._remove_absent()
        self.moves.look(self.metadata_writer.state.replication.topics.reassigning())
        self.deletions.retry()

    def lose(self, broker_id: int, keys: Iterable[PartitionKey]) -> None:
        """Remove a broker from the ISR of partitions."""
        steps = []
        for key in keys:
            partition = self.partition(key)
            if partition is not None and partition.partition_epoch != NOT_MADE:
                steps.append((key, without(partition, broker_id)))
        self.change(steps)

    def _remove_absent(self) -> None:
        """Remove offline replicas from all ISRs; partitions led by them lose their leader."""
        absent: dict[int, list[PartitionKey]] = {}
        for key, partition in self.metadata_writer.state.replication.partitions():
            for replica in partition.replicas:
                if not self.is_registered(replica, key) and replica in partition.isr:
                    absent.setdefault(replica, []).append(key)
        for replica in sorted(absent):
            self.lose(replica, absent[replica])

    # Brokers
    # ----------------------------------------------------------------------------------------------

    async def _process_broker_change(self, _: str) -> None:
        """Process the current list of brokers: new ones, restarted ones (another epoch), and failed
        ones.
        """
        records = await self.reading.brokers()
        cluster = self.metadata_writer.state.cluster
        seen = {
            record.broker_id: record
            for record in sorted(records, key=lambda record: record.broker_id)
        }
        known = {broker.broker_id: broker for broker in cluster.brokers()}
        new = [seen[broker_id] for broker_id in sorted(seen) if broker_id not in known]
        bounced = [
            each
            for each in seen.values()
            if each.broker_id in known and each.broker_epoch > known[each.broker_id].broker_epoch
        ]
        dead = [known[broker_id] for broker_id in sorted(known) if broker_id not in seen]
        if new:
            self._add_brokers(new)
        if bounced:
            self._remove_brokers([known[record.broker_id] for record in bounced])
            self._add_brokers(bounced)
        if dead:
            self._remove_brokers(dead)

    async def _process_broker_update(self, about: str) -> None:
        """The znode of a broker has changed."""
        for record in await self.reading.brokers([int(about)]):
            known = self.metadata_writer.state.cluster.broker(record.broker_id)
            if known is not None and known.broker_epoch == record.broker_epoch:
                record.in_controlled_shutdown = known.in_controlled_shutdown
                self.metadata_writer.learn([record])

    def _add_brokers(self, records: Sequence[RegisterBrokerRecord]) -> None:
        for record in records:
            self.offline_replicas.pop(record.broker_id, None)
            self.world.emit(
                BrokerJoined(broker_id=record.broker_id, broker_epoch=record.broker_epoch)
            )
        self.metadata_writer.learn(records)
        self.elect_offline()
        for record in records:
            self.queue_event("moves", str(record.broker_id))
        self.deletions.on_brokers_started([record.broker_id for record in records])

    def _remove_brokers(self, brokers: Sequence[BrokerRegistration]) -> None:
        """Elect new leaders first, then remove the failed brokers from ISRs."""
        for broker in brokers:
            self.offline_replicas.pop(broker.broker_id, None)
            self.world.emit(
                BrokerLeft(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
            )
        self.metadata_writer.learn(
            [
                UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
                for broker in brokers
            ]
        )
        topics = self.metadata_writer.state.replication.topics
        self.elect_offline()
        for broker in brokers:
            self.lose(
                broker.broker_id,
                [
                    key
                    for key in topics.with_isr_member(broker.broker_id)
                    if not self.is_being_deleted(key)
                ],
            )
        self.deletions.retry()

    def _update_channels(self) -> None:
        """Keep a channel to each registered broker."""
        listener = self.config.inter_broker_listener_name
        brokers = {}
        for broker in self.metadata_writer.image.brokers():
            found = broker.listener(listener)
            if found is not None:
                brokers[broker.broker_id] = BrokerChannelEndpoint(
                    Address(found.host, found.port), broker.broker_epoch
                )
        self._propagator.set_brokers(brokers)

    def shut_down(self, broker: BrokerRegistration) -> list[PartitionKey]:
        """Move leadership away from a broker and remove it from the remaining ISRs; return the
        partitions it still leads.
        """
        if not broker.in_controlled_shutdown:
            self.metadata_writer.learn([controlled_shutdown_record(broker)])
        broker_id = broker.broker_id
        held = [
            (key, partition)
            for key, partition in self.metadata_writer.state.replication.partitions()
            if broker_id in partition.replicas
            and len(partition.replicas) > 1
            and partition.partition_epoch != NOT_MADE
            and not self.is_being_deleted(key)
        ]
        self.change(
            (key, self._after_shutdown(key, partition))
            for key, partition in held
            if partition.leader == broker_id
        )
        followed = [key for key, partition in held if partition.leader != broker_id]
        self._propagator.send(
            self._propagation.leaving(
                self.metadata_writer.image,
                broker_id,
                [(self.topic_of(key).name, key[1]) for key in followed],
            )
        )
        self.lose(broker_id, followed)
        left = self.metadata_writer.state.replication.partitions()
        return [
            key
            for key, partition in left
            if partition.leader == broker_id
            and len(partition.replicas) > 1
            and not self.is_being_deleted(key)
        ]

    def _after_shutdown(
        self, key: PartitionKey, partition: PartitionRegistration
    ) -> PartitionRegistration | None:
        return elected_for_shutdown(
            partition, lambda replica: self.is_registered(replica, key), self.is_leaving
        )

    # Topics
    # ----------------------------------------------------------------------------------------------

    async def _process_topic_change(self, _: str) -> None:
        """Topics were created or deleted directly in ZooKeeper."""
        there = {topic.name: topic.topic_id for topic in self.metadata_writer.image.topics()}
        names = await self.reading.topic_names()
        table = self.metadata_writer.state.replication.topics
        for name in names:
            if table.topic_named(name) is None:
                await self._add_topic(name)
        for name in sorted(there):
            topic = table.topic_named(name)
            is_same = topic is not None and topic.topic_id == there[name]
            if (
                name not in names
                and topic is not None
                and is_same
                and name not in self.deletions.queued
            ):
                self.metadata_writer.learn([self.reading.removal(topic)])

    async def _add_topic(self, name: str) -> None:
        try:
            records = await self.reading.topic(name)
        except MalformedMessage as malformed:
            return self._not_understood(malformed)
        self.metadata_writer.learn(records)
        topic = self.metadata_writer.state.replication.topics.topic_named(name)
        if topic is not None:
            self.elect_offline([(topic.topic_id, number) for number in sorted(topic.partitions)])

    async def _process_partition_change(self, about: str) -> None:
        """Partitions were added directly in ZooKeeper."""
        topic = self.metadata_writer.state.replication.topics.topic_named(about)
        if topic is None:
            return await self._add_topic(about)  # it was malformed before
        records = [
            record
            for record in await self.reading.partitions(topic)
            if record.partition_id not in topic.partitions
        ]
        if about in self.deletions.queued or not records:
            return
        self.metadata_writer.learn(records)
        self.elect_offline([(topic.topic_id, record.partition_id) for record in records])

    async def _process_isr_changes(self, _: str) -> None:
        """Leaders below 2.7-IV2 have written ISRs themselves, and sent notifications."""
        records = await self.reading.isr_changes()
        for record in records:
            before = self.partition((record.topic_id, record.partition_id))
            if before is not None and record.partition_epoch > before.partition_epoch:
                self.metadata_writer.learn([record])
        self.moves.look([(record.topic_id, record.partition_id) for record in records])

    async def _process_directories(self, _: str) -> None:
        """Brokers report failed log directories: LeaderAndIsr is sent to them again, and their
        responses list the failed replicas.
        """
        broker_ids = await self.reading.directory_events()
        self._propagator.send(self._propagation.holdings(self.metadata_writer.image, broker_ids))

    def learned(self, records: Sequence[Message]) -> None:
        """Apply configs, quotas and ACLs that brokers have read."""
        self.metadata_writer.learn(records)
        self.elect_offline(
            [
                key
                for key in self.metadata_writer.state.replication.topics.leaderless()
                if self.allows_unclean(key)
            ]
        )

    # Requests to brokers
    # ----------------------------------------------------------------------------------------------

    def _on_applied(self, records: Sequence[Message]) -> None:
        if self.is_active:
            changes = self.metadata_writer.image.take_changes()
            if changes.brokers:
                self._update_channels()
            self._propagator.send(self._propagation.changed(self.metadata_writer.image, changes))
            self.deletions.on_applied()

    def send_deletions(self, topic_ids: Iterable[bytes]) -> None:
        """Send StopReplica with deletion for topics that still exist."""
        self._propagator.send(self._propagation.deleting(self.metadata_writer.image, topic_ids))

    def resend_deletions(self, topic_ids: Iterable[bytes], broker_ids: Sequence[int]) -> None:
        """Send restarted brokers StopReplica for topics that are being deleted."""
        self._propagator.send(
            self._propagation.resend_deletions_of(self.metadata_writer.image, topic_ids, broker_ids)
        )

    def _decided_in(self, topic: str, number: int) -> int:
        return self.controller_epoch

    def _on_response(
        self, broker_id: int, request: ControlRequest, response: ControlResponse
    ) -> None:
        if not self.is_active:
            return
        if isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
            self.deletions.on_stopped(broker_id, request, response)
        elif (
            isinstance(request, LeaderAndIsrRequest)
            and isinstance(response, LeaderAndIsrResponse)
            and response.error_code == ErrorCode.NONE
        ):
            self._process_errors(broker_id, response)

    def _process_errors(self, broker_id: int, response: LeaderAndIsrResponse) -> None:
        """Record replicas that a broker reports as offline, and those that are online again."""
        held = self.offline_replicas.setdefault(broker_id, {})
        lost = []
        for key, error in self._errors(response):
            if error == ErrorCode.NONE:
                held.pop(key, None)
            elif error == ErrorCode.KAFKA_STORAGE_ERROR and key not in held:
                held[key] = None
                lost.append(key)
        if lost:
            self.elect_offline()
            self.lose(broker_id, [key for key in lost if self.partition(key) is not None])

    def _errors(self, response: LeaderAndIsrResponse) -> list[tuple[PartitionKey, int]]:
        topics = self.metadata_writer.state.replication.topics
        found = [
            ((topic.topic_id, each.partition_index), each.error_code)
            for topic in response.topics
            for each in topic.partition_errors
        ]
        for row in response.partition_errors:
            topic_id = topics.topic_id(row.topic_name)
            if topic_id is not None:
                found.append(((topic_id, row.partition_index), row.error_code))
        return found

    # Automatic leader rebalancing
    # ----------------------------------------------------------------------------------------------

    async def _rebalance(self) -> None:
        """Periodically elect preferred leaders where too many of a broker's preferred partitions
        are led by others.
        """
        await asyncio.sleep(FIRST_REBALANCE_MS / 1000)
        while True:
            self._balance()
            await asyncio.sleep(self.config.leader_imbalance_check_interval_seconds)

    def _balance(self) -> None:
        by_leader: dict[int, list[PartitionKey]] = {}
        for key, partition in self.metadata_writer.state.replication.partitions():
            if not self.is_being_deleted(key) and partition.partition_epoch != NOT_MADE:
                by_leader.setdefault(partition.replicas[0], []).append(key)
        for broker_id in sorted(by_leader):
            keys = by_leader[broker_id]
            elsewhere = [
                key
                for key in keys
                if (held := self.partition(key)) is not None and held.leader != broker_id
            ]
            if len(elsewhere) * 100 > len(keys) * LEADER_IMBALANCE_PERCENT:
                able = [
                    key
                    for key in elsewhere
                    if (each := self.partition(key))
                    and broker_id in each.isr
                    and self.is_online(broker_id, key)
                ]
                self.elect_preferred(able)

"""One reign of a controller of ZooKeeper's time: what it has read, what it decides when brokers come and go, and what it tells them.

It reads everything first, tells brokers of each other, takes from partitions whoever is not there, and elects leaders where there are none. Then it
acts by what it sees in ZooKeeper, one thing after the other, and by what it is asked.   Source: kafka.controller.KafkaController.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kraftsim.core.metadata.broker_registration import BrokerRegistration
from kraftsim.core.metadata.cluster_control import controlled_shutdown_record
from kraftsim.core.metadata.partition_facts import changed_fact
from kraftsim.core.metadata.partition_registration import PartitionRegistration, partition_record
from kraftsim.core.metadata.topic_table import PartitionKey, Topic
from kraftsim.core.raft.voter_set import Address
from kraftsim.core.zookeeper_mode.partition_rules import (
    NOT_MADE,
    elected_first,
    elected_for_shutdown,
    elected_of,
    elected_offline,
    without,
)
from kraftsim.core.zookeeper_mode.propagation import ZookeeperPropagation
from kraftsim.core.zookeeper_mode.request_batch import ControlRequest, Sender
from kraftsim.core.zookeeper_mode.request_versions import request_versions
from kraftsim.core.zookeeper_mode.topic_ids import told_topic_id
from kraftsim.events.zookeeper_controllers import BrokerCame, BrokerWent, ZookeeperControllerReady
from kraftsim.events.zookeeper_mode import ZnodeNotUnderstood
from kraftsim.node.controller.mutation_quotas import MutationQuotas
from kraftsim.node.zookeeper.client import ZookeeperClient
from kraftsim.node.zookeeper_mode.fenced_writes import FencedWrites
from kraftsim.node.zookeeper_mode.moves import Moves
from kraftsim.node.zookeeper_mode.propagator import ControlResponse, Propagator, ToldBroker
from kraftsim.node.zookeeper_mode.reign_reading import ReignReading
from kraftsim.node.zookeeper_mode.topic_deletions import TopicDeletions
from kraftsim.node.zookeeper_mode.znode_ledger import ZnodeLedger
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k04_leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from protocol.messages.k05_stop_replica import StopReplicaRequest, StopReplicaResponse
from protocol.metadata.m00_register_broker import RegisterBrokerRecord
from protocol.metadata.m01_unregister_broker import UnregisterBrokerRecord
from protocol.schema import Message

if TYPE_CHECKING:
    from kraftsim.node.zookeeper_mode.controller import ZookeeperController

UNCLEAN_ELECTION_CONFIG: Final = "unclean.leader.election.enable"
FIRST_REBALANCE_MS: Final = 5000
LEADER_IMBALANCE_PERCENT: Final = 10
"""Kafka's leader.imbalance.per.broker.percentage: so many may be led by others than their first replicas."""


class Reign:
    """The present controller, as long as it is one. Handlers use what is public here as they would use a KRaft controller's."""

    def __init__(self, controller: "ZookeeperController", client: ZookeeperClient, *, controller_epoch: int, epoch_version: int) -> None:
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
        self.ledger = ZnodeLedger(
            self.world, controller.new_state(), controller_epoch=controller_epoch, carry=self.writes.carry, on_applied=self._on_applied
        )
        self.ledger.has_topic_ids = self.protocol.has_topic_ids
        self.mutations = MutationQuotas(self.config, self.world.clock, lambda: self.ledger.state.registries)
        self.reading = ReignReading(self)
        self.ledger.reload = self.reading.reload
        self.ledger.on_conflict = lambda: self.has_happened("conflict")
        self.offline_replicas: dict[int, dict[PartitionKey, None]] = {}
        """Broker -> the partitions that it cannot hold because a directory has failed."""
        self.deletions = TopicDeletions(self)
        self.moves = Moves(self)
        self._propagation = ZookeeperPropagation(
            Sender(
                controller_id=self.config.node_id,
                controller_epoch=controller_epoch,
                is_kraft=False,
                listener=self.config.inter_broker_listener_name,
                versions=request_versions(self.protocol.name),
                decided_in=self._decided_in,
                told_topic_id=lambda topic_id, name: told_topic_id(topic_id),
            )
        )
        self._propagator = Propagator(self.shell, self._on_told)
        self._tasks: list[asyncio.Task[None]] = []
        self._events: dict[tuple[str, str], None] = {}
        self._has_events = asyncio.Event()

    # Beginning and end -----------------------------------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Read everything and begin to decide. Raises ControllerMoved, ZookeeperRefused, MalformedMessage."""
        await self.reading.prepare()
        self.ledger.learn(await self.reading.brokers())
        self.ledger.learn(await self.reading.everything())
        self.is_active = True
        self._spawn(self.ledger.run, "controller-writes")
        self._follow_brokers()
        self._propagator.send(self._propagation.begin(self.ledger.image))
        self.ledger.image.take_changes()
        self._lose_absent()
        self.elect_offline()
        state = self.ledger.state
        self.world.note(
            ZookeeperControllerReady(
                controller_epoch=self.controller_epoch,
                broker_count=sum(1 for _ in state.cluster.brokers()),
                topic_count=sum(1 for _ in state.replication.topics.topics()),
            )
        )
        self._spawn(self._act, "controller-events")
        if self.config.auto_leader_rebalance_enable:
            self._spawn(self._rebalance, "controller-rebalance")
        for event in ("reassignments", "moves", "deletions", "preferred"):
            self.has_happened(event)

    def end(self) -> None:
        """Decide nothing more; whoever waits is told that this is not the controller."""
        self.is_active = False
        for task in self._tasks:
            task.cancel()
        self._tasks = []
        self._propagator.close()
        self.deletions.close()
        self.ledger.give_up()

    def abort(self) -> None:
        """End as a process that dies."""
        self.is_active = False
        self._propagator.abort()

    def has_happened(self, event: str, about: str = "") -> None:
        """Take note that something is to be looked at; once it is looked at, however often it has happened."""
        self._events[event, about] = None
        self._has_events.set()

    async def _act(self) -> None:
        act: dict[str, Callable[[str], object]] = {
            "brokers": self._look_at_brokers,
            "broker": self._look_at_broker,
            "topics": self._look_at_topics,
            "topic": self._look_at_topic,
            "deletions": self.deletions.look,
            "reassignments": self.moves.look_at_znode,
            "moves": self.moves.resume,
            "preferred": self.moves.look_at_elections,
            "isr-changes": self._look_at_isr_changes,
            "directories": self._look_at_directories,
            "conflict": self._look_again,
        }
        while True:
            while self._events:
                event, about = next(iter(self._events))
                del self._events[event, about]
                try:
                    await act[event](about)  # type: ignore[misc]
                except MalformedMessage as malformed:  # what was known before goes on to hold
                    self._not_understood(malformed)
                await self.world.breathe("seen in ZooKeeper, and the next not looked at")
            self._has_events.clear()
            await self._has_events.wait()

    def _not_understood(self, malformed: MalformedMessage) -> None:
        self.world.note(ZnodeNotUnderstood(path=malformed.path, reason=malformed.reason))

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        self._tasks.append(self.shell.tasks.spawn(self.controller.guarded(self, work), name, lasts=True))

    # Looking at partitions -------------------------------------------------------------------------------------------------------------------------

    def partition(self, key: PartitionKey) -> PartitionRegistration | None:
        """Return a partition."""
        return self.ledger.state.replication.topics.partition(key)

    def topic_of(self, key: PartitionKey) -> Topic:
        """Return the topic of a partition that is there."""
        topic = self.ledger.state.replication.topics.topic(key[0])
        assert topic is not None, "a partition belongs to a topic"
        return topic

    def is_there(self, broker_id: int, key: PartitionKey) -> bool:
        """Tell whether a broker is there and can hold a partition, also if it is about to shut down."""
        return self.ledger.state.cluster.broker(broker_id) is not None and key not in self.offline_replicas.get(broker_id, ())

    def is_online(self, broker_id: int, key: PartitionKey) -> bool:
        """Tell whether a broker may lead a partition."""
        return self.ledger.state.cluster.is_active(broker_id) and self.is_there(broker_id, key)

    def is_leaving(self, broker_id: int) -> bool:
        """Tell whether a broker is about to shut down."""
        broker = self.ledger.state.cluster.broker(broker_id)
        return broker is not None and broker.in_controlled_shutdown

    def is_going(self, key: PartitionKey) -> bool:
        """Tell whether the topic of a partition is about to be deleted."""
        return self.topic_of(key).name in self.deletions.queued

    def allows_unclean(self, key: PartitionKey) -> bool:
        """Tell whether a partition may be led by somebody who lacks records."""
        return self.ledger.state.configs.effective_topic_config(self.topic_of(key).name, UNCLEAN_ELECTION_CONFIG).lower() == "true"

    # Changing partitions ---------------------------------------------------------------------------------------------------------------------------

    def change(self, steps: Iterable[tuple[PartitionKey, PartitionRegistration | None]], on_committed: Callable[[], None] | None = None) -> None:
        """Let partitions be what they are to be; None: as they are."""
        records: list[Message] = []
        facts = []
        for key, after in steps:
            if after is not None:
                records.append(partition_record(*key, after, self.ledger.state.features.metadata_level))
                before = self.partition(key)
                if before is None or before.partition_epoch != after.partition_epoch:  # else only its replicas are others
                    facts.append(changed_fact(key, self.topic_of(key).name, after))
        if records or on_committed is not None:
            self.ledger.write(records, tuple(facts), None if on_committed is None else lambda _: on_committed())

    def elect_offline(self, keys: Iterable[PartitionKey] | None = None) -> None:
        """Elect leaders for partitions that have none, or one that is not there."""
        wanted = [key for key, _ in self.ledger.state.replication.partitions()] if keys is None else list(keys)
        self.change((key, self._elected(key)) for key in wanted if not self.is_going(key))

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
        """Elect the first replicas of partitions, all at once, and return which of them lead now."""
        elected: dict[PartitionKey, PartitionRegistration | None] = {}
        for key in keys:
            partition = self.partition(key)
            assert partition is not None, "only what is there is elected for"
            elected[key] = elected_of(partition, partition.replicas[:1], partial(self._is_online_for, key))
        self.change(elected.items())
        return {key: after is not None for key, after in elected.items()}

    def elect_uncleanly(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, bool]:
        """Elect leaders of partitions, whatever they lack, all at once, and return which have one now."""
        elected: dict[PartitionKey, PartitionRegistration | None] = {}
        for key in keys:
            partition = self.partition(key)
            assert partition is not None, "only what is there is elected for"
            is_online = partial(self._is_online_for, key)
            elected[key] = elected_offline(partition, is_online, allows_unclean=True, marks_recovery=self.protocol.has_leader_recovery)
        self.change(elected.items())
        return {key: after is not None for key, after in elected.items()}

    def _is_online_for(self, key: PartitionKey, broker_id: int) -> bool:
        return self.is_online(broker_id, key)

    async def _look_again(self, _: str) -> None:
        """Decide anew what was undone because a leader had written its in-sync replicas meanwhile."""
        self.elect_offline()
        self._lose_absent()
        self.moves.look(self.ledger.state.replication.topics.reassigning())
        self.deletions.retry()

    def lose(self, broker_id: int, keys: Iterable[PartitionKey]) -> None:
        """Take a broker from those in sync with partitions."""
        steps = []
        for key in keys:
            partition = self.partition(key)
            if partition is not None and partition.partition_epoch != NOT_MADE:
                steps.append((key, without(partition, broker_id)))
        self.change(steps)

    def _lose_absent(self) -> None:
        """Take from all partitions whoever is not there; those who led them lead no more."""
        absent: dict[int, list[PartitionKey]] = {}
        for key, partition in self.ledger.state.replication.partitions():
            for replica in partition.replicas:
                if not self.is_there(replica, key) and replica in partition.isr:
                    absent.setdefault(replica, []).append(key)
        for replica in sorted(absent):
            self.lose(replica, absent[replica])

    # Brokers ---------------------------------------------------------------------------------------------------------------------------------------

    async def _look_at_brokers(self, _: str) -> None:
        """Act by who is there now: who came, who came again in another life, who went."""
        records = await self.reading.brokers()
        cluster = self.ledger.state.cluster
        seen = {record.broker_id: record for record in sorted(records, key=lambda record: record.broker_id)}
        known = {broker.broker_id: broker for broker in cluster.brokers()}
        new = [seen[broker_id] for broker_id in sorted(seen) if broker_id not in known]
        bounced = [each for each in seen.values() if each.broker_id in known and each.broker_epoch > known[each.broker_id].broker_epoch]
        dead = [known[broker_id] for broker_id in sorted(known) if broker_id not in seen]
        if new:
            self._come(new)
        if bounced:
            self._go([known[record.broker_id] for record in bounced])
            self._come(bounced)
        if dead:
            self._go(dead)

    async def _look_at_broker(self, about: str) -> None:
        """A broker says other things of itself."""
        for record in await self.reading.brokers([int(about)]):
            known = self.ledger.state.cluster.broker(record.broker_id)
            if known is not None and known.broker_epoch == record.broker_epoch:
                record.in_controlled_shutdown = known.in_controlled_shutdown
                self.ledger.learn([record])

    def _come(self, records: Sequence[RegisterBrokerRecord]) -> None:
        for record in records:
            self.offline_replicas.pop(record.broker_id, None)
            self.world.note(BrokerCame(broker_id=record.broker_id, broker_epoch=record.broker_epoch))
        self.ledger.learn(records)
        self.elect_offline()
        for record in records:
            self.has_happened("moves", str(record.broker_id))
        self.deletions.on_come([record.broker_id for record in records])

    def _go(self, brokers: Sequence[BrokerRegistration]) -> None:
        """Elect others first, then take those who are gone from the in-sync replicas."""
        for broker in brokers:
            self.offline_replicas.pop(broker.broker_id, None)
            self.world.note(BrokerWent(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch))
        self.ledger.learn([UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch) for broker in brokers])
        topics = self.ledger.state.replication.topics
        self.elect_offline()
        for broker in brokers:
            self.lose(broker.broker_id, [key for key in topics.with_isr_member(broker.broker_id) if not self.is_going(key)])
        self.deletions.retry()

    def _follow_brokers(self) -> None:
        """Keep a channel to everybody who is there."""
        listener = self.config.inter_broker_listener_name
        brokers = {}
        for broker in self.ledger.image.brokers():
            found = broker.listener(listener)
            if found is not None:
                brokers[broker.broker_id] = ToldBroker(Address(found.host, found.port), broker.broker_epoch)
        self._propagator.set_brokers(brokers)

    def shut_down(self, broker: BrokerRegistration) -> list[PartitionKey]:
        """Move what a broker leads to others, and take it from the in-sync replicas of the rest; return what it leads still."""
        if not broker.in_controlled_shutdown:
            self.ledger.learn([controlled_shutdown_record(broker)])
        broker_id = broker.broker_id
        held = [
            (key, partition)
            for key, partition in self.ledger.state.replication.partitions()
            if broker_id in partition.replicas and len(partition.replicas) > 1 and partition.partition_epoch != NOT_MADE and not self.is_going(key)
        ]
        self.change((key, self._without_leaving(key, partition)) for key, partition in held if partition.leader == broker_id)
        self.lose(broker_id, [key for key, partition in held if partition.leader != broker_id])
        left = self.ledger.state.replication.partitions()
        return [key for key, partition in left if partition.leader == broker_id and len(partition.replicas) > 1 and not self.is_going(key)]

    def _without_leaving(self, key: PartitionKey, partition: PartitionRegistration) -> PartitionRegistration | None:
        return elected_for_shutdown(partition, lambda replica: self.is_there(replica, key), self.is_leaving)

    # Topics ----------------------------------------------------------------------------------------------------------------------------------------

    async def _look_at_topics(self, _: str) -> None:
        """Somebody has made topics, or removed some, by hand."""
        there = {topic.name: topic.topic_id for topic in self.ledger.image.topics()}
        names = await self.reading.topic_names()
        table = self.ledger.state.replication.topics
        for name in names:
            if table.topic_named(name) is None:
                await self._take_topic(name)
        for name in sorted(there):
            topic = table.topic_named(name)
            is_same = topic is not None and topic.topic_id == there[name]
            if name not in names and topic is not None and is_same and name not in self.deletions.queued:
                self.ledger.learn([self.reading.removal(topic)])

    async def _take_topic(self, name: str) -> None:
        try:
            records = await self.reading.topic(name)
        except MalformedMessage as malformed:
            return self._not_understood(malformed)
        self.ledger.learn(records)
        topic = self.ledger.state.replication.topics.topic_named(name)
        if topic is not None:
            self.elect_offline([(topic.topic_id, number) for number in sorted(topic.partitions)])

    async def _look_at_topic(self, about: str) -> None:
        """Somebody has given a topic more partitions by hand."""
        topic = self.ledger.state.replication.topics.topic_named(about)
        if topic is None:
            return await self._take_topic(about)  # it could not be read before
        records = [record for record in await self.reading.partitions(topic) if record.partition_id not in topic.partitions]
        if about in self.deletions.queued or not records:
            return
        self.ledger.learn(records)
        self.elect_offline([(topic.topic_id, record.partition_id) for record in records])

    async def _look_at_isr_changes(self, _: str) -> None:
        """Leaders below 2.7-IV2 have written ISRs by themselves, and say so."""
        records = await self.reading.isr_changes()
        for record in records:
            before = self.partition((record.topic_id, record.partition_id))
            if before is not None and record.partition_epoch > before.partition_epoch:
                self.ledger.learn([record])
        self.moves.look([(record.topic_id, record.partition_id) for record in records])

    async def _look_at_directories(self, _: str) -> None:
        """Brokers say that directories have failed: what they hold is told them again, and their answers say what is lost."""
        broker_ids = await self.reading.directory_events()
        self._propagator.send(self._propagation.holdings(self.ledger.image, broker_ids))

    def learned(self, records: Sequence[Message]) -> None:
        """Take what brokers have been told of configurations, quotas and rules."""
        self.ledger.learn(records)
        self.elect_offline([key for key in self.ledger.state.replication.topics.leaderless() if self.allows_unclean(key)])

    # Telling brokers -------------------------------------------------------------------------------------------------------------------------------

    def _on_applied(self, records: Sequence[Message]) -> None:
        if self.is_active:
            changes = self.ledger.image.take_changes()
            if changes.brokers:
                self._follow_brokers()
            self._propagator.send(self._propagation.changed(self.ledger.image, changes))
            self.deletions.on_applied()

    def tell_deletions(self, topic_ids: Iterable[bytes]) -> None:
        """Tell brokers to delete topics that are still there."""
        self._propagator.send(self._propagation.deleting(self.ledger.image, topic_ids))

    def tell_deletions_again(self, topic_ids: Iterable[bytes], broker_ids: Sequence[int]) -> None:
        """Tell brokers that have come to delete what they hold of topics that are about to go."""
        self._propagator.send(self._propagation.deleting_again(self.ledger.image, topic_ids, broker_ids))

    def _decided_in(self, topic: str, number: int) -> int:
        return self.controller_epoch

    def _on_told(self, broker_id: int, request: ControlRequest, response: ControlResponse) -> None:
        if not self.is_active:
            return
        if isinstance(request, StopReplicaRequest) and isinstance(response, StopReplicaResponse):
            self.deletions.on_stopped(broker_id, request, response)
        elif isinstance(request, LeaderAndIsrRequest) and isinstance(response, LeaderAndIsrResponse) and response.error_code == ErrorCode.NONE:
            self._look_at_errors(broker_id, response)

    def _look_at_errors(self, broker_id: int, response: LeaderAndIsrResponse) -> None:
        """Take note of replicas that a broker cannot hold, and of those that it can again."""
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
        topics = self.ledger.state.replication.topics
        found = [((topic.topic_id, each.partition_index), each.error_code) for topic in response.topics for each in topic.partition_errors]
        for row in response.partition_errors:
            topic_id = topics.topic_id(row.topic_name)
            if topic_id is not None:
                found.append(((topic_id, row.partition_index), row.error_code))
        return found

    # By itself -------------------------------------------------------------------------------------------------------------------------------------

    async def _rebalance(self) -> None:
        """Give partitions back to their first replicas where too many of one broker's are led by others, every now and then."""
        await asyncio.sleep(FIRST_REBALANCE_MS / 1000)
        while True:
            self._balance()
            await asyncio.sleep(self.config.leader_imbalance_check_interval_seconds)

    def _balance(self) -> None:
        by_leader: dict[int, list[PartitionKey]] = {}
        for key, partition in self.ledger.state.replication.partitions():
            if not self.is_going(key) and partition.partition_epoch != NOT_MADE:
                by_leader.setdefault(partition.replicas[0], []).append(key)
        for broker_id in sorted(by_leader):
            keys = by_leader[broker_id]
            elsewhere = [key for key in keys if (held := self.partition(key)) is not None and held.leader != broker_id]
            if len(elsewhere) * 100 > len(keys) * LEADER_IMBALANCE_PERCENT:
                able = [key for key in elsewhere if (each := self.partition(key)) and broker_id in each.isr and self.is_online(broker_id, key)]
                self.elect_preferred(able)

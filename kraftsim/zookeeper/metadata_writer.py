"""Commits the decisions of a ZooKeeper-mode controller as znodes: replayed immediately, written in
order, answered once ZooKeeper acknowledges.

It has the interface of the KRaft metadata writer. Decisions made during a write are batched into
the next write; all writes are conditional on the controller epoch. If another node has written a
znode concurrently, all unacknowledged decisions are reverted, the znode is read again, and the
requests are handled again.
Source: kafka.controller.KafkaController, kafka.zk.KafkaZkClient (ControllerEpochZNode).
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from kraftsim.core.decision import Decision
from kraftsim.events.event import Event
from kraftsim.metadata.events import MetadataReverted
from kraftsim.metadata.metadata_writer import AppendedOffsets, OnCommitted
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.metadata.rules_image import MetadataImage
from kraftsim.metadata.rules_registrations import PartitionRegistration
from kraftsim.server.call import Answer, Deferred
from kraftsim.world.interface import World, YieldPoint
from kraftsim.zookeeper.client import ZookeeperRefused
from kraftsim.zookeeper.rules_control_requests import derived_topic_id
from kraftsim.zookeeper.rules_partitions import NOT_MADE, StateView, assignment_of
from kraftsim.zookeeper.rules_znode_writes import WriteKind, ZnodeWrite
from kraftsim.zookeeper.rules_znodes import state_text, topic_text
from kraftsim.zookeeper.znode_writer import ControllerMoved
from protocol.errors import ErrorCode
from protocol.metadata.settings import TOPIC_RESOURCE, FeatureLevelRecord
from protocol.metadata.topics import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from protocol.schema import Message
from protocol.zookeeper.kafka_znodes import (
    FEATURE,
    FeatureZnode,
    build_config,
    config_path,
    delete_topic_path,
    state_path,
    topic_path,
)

T = TypeVar("T")
BYTES_MAX: Final = 512 * 1024
"""Half of ZooKeeper's request size limit (jute.maxbuffer)."""
OnApplied = Callable[[Sequence[Message]], None]
Carry = Callable[[Sequence[ZnodeWrite]], Awaitable[None]]


@dataclass(slots=True)
class _Entry:
    """Records that are not acknowledged yet, their writes, and their callbacks."""

    records: Sequence[Message]
    writes: list[ZnodeWrite]
    next_offset: int
    on_commit: Callable[[], None]
    on_given_up: Callable[[ErrorCode], None] | None
    again: Callable[[], None] | None
    """Repeats the decision."""


@dataclass(slots=True)
class _Writes:
    """The writes for some records."""

    found: list[ZnodeWrite] = field(default_factory=list)
    made: dict[bytes, None] = field(default_factory=dict)
    """Topics to be created."""
    changed: dict[bytes, None] = field(default_factory=dict)
    """Topics with changed replicas."""
    parents: dict[str, None] = field(default_factory=dict)
    """Parent znodes of partitions to be created."""
    parent_count: int = 0


class ZnodeWriter:
    """The cluster state of a ZooKeeper-mode controller, and the only way to change it.

    `carry` writes atomically under the controller epoch; `on_applied` receives records that are
    acknowledged or learned.
    """

    def __init__(
        self,
        world: World,
        state: ControllerState,
        *,
        controller_epoch: int,
        carry: Carry,
        on_applied: OnApplied,
    ) -> None:
        self.state = state
        self.refuse: Callable[[ErrorCode], Answer] | None = None
        """Builds the refusal of the request being handled; sent for unacknowledged writes when the
        controller resigns.
        """
        self.again: Callable[[], Answer | Deferred] | None = None
        """Handles the current request again."""
        self.has_written = asyncio.Event()
        self.controller_epoch = controller_epoch
        self.image = MetadataImage()
        """The acknowledged state."""
        self.feature_version = 2
        self.has_topic_ids = True
        """Whether new topics get ids; below 2.8-IV0 ids are derived from topic names."""
        self.reload: Callable[[str], Awaitable[Sequence[Message]]] | None = None
        """Re-reads a znode that another node has written."""
        self.on_conflict: Callable[[], None] = lambda: None
        """Called when something without a request to repeat was reverted."""
        self._facts = StateView(state)
        self._world = world
        self._carry = carry
        self._on_applied = on_applied
        self._next_offset = 0
        self._applied_offset = 0
        self._entries: deque[_Entry] = deque()
        self._undone: deque[_Entry] = deque()
        """Entries to be decided again once the conflicting znode is re-read."""
        self._has_entries = asyncio.Event()
        self._is_over = False

    @property
    def next_offset(self) -> int:
        """The number of records so far: there is no log, but an order."""
        return self._next_offset

    def commit(
        self,
        decision: Decision[T],
        build_answer: Callable[[AppendedOffsets | None], Answer],
        *,
        is_atomic: bool = True,
    ) -> Answer | Deferred:
        """Write a decision and answer once it is acknowledged; without records, once all state it
        depends on is acknowledged.
        """
        later, refuse, again = Deferred(), self.refuse, self.again

        def give_up(error: ErrorCode) -> None:
            if refuse is not None:
                later.complete(refuse(error))

        def repeat_decision() -> None:
            assert again is not None, "only a repeatable request is repeated"
            answer = again()
            if isinstance(answer, Deferred):
                pass_on(answer, later)
            else:
                later.complete(answer)

        self._write(
            decision.records if self.has_topic_ids else without_ids(decision.records),
            decision.facts,
            lambda offsets: later.complete_with(lambda: build_answer(offsets)),
            give_up,
            None if again is None else repeat_decision,
        )
        return later if later.answer is None else later.answer

    def write(
        self,
        records: Sequence[Message],
        facts: Sequence[Event] = (),
        on_committed: OnCommitted | None = None,
        *,
        on_given_up: Callable[[], None] | None = None,
        is_atomic: bool = True,
    ) -> None:
        """Replay records, write their znodes, and emit the events and call back once they are
        acknowledged.
        """
        self._write(
            records,
            facts,
            on_committed,
            None if on_given_up is None else lambda _: on_given_up(),
            None,
        )

    def learn(self, records: Sequence[Message]) -> None:
        """Apply records read from ZooKeeper, as far as they still match the current topics: reading
        takes time.
        """
        records = self._of_present_topics(records)
        if not records:
            return
        if self._entries:  # unacknowledged decisions take precedence
            self._write(records, (), None, None, lambda: self.learn(records), is_learned=True)
            return
        self._replay(records, is_learned=True)
        self._applied_offset = self._next_offset
        self.state.commit_through(self._next_offset - 1)
        self._apply(records)

    def _of_present_topics(self, records: Sequence[Message]) -> list[Message]:
        """Filter out topics whose names were taken meanwhile, and records of topics that are
        gone.
        """
        table = self.state.replication.topics
        made: dict[bytes, None] = {}
        found: list[Message] = []
        for record in records:
            if isinstance(record, TopicRecord):
                if table.topic_id(record.name) is not None:
                    continue
                made[record.topic_id] = None
            elif (
                isinstance(record, RemoveTopicRecord | PartitionRecord | PartitionChangeRecord)
                and record.topic_id not in made
                and table.topic(record.topic_id) is None
            ):
                continue
            found.append(record)
        return found

    async def run(self) -> None:
        """Write decisions while this broker is the controller.

        Raises ControllerMoved, ZookeeperRefused.
        """
        while True:
            if not self._entries:
                self._has_entries.clear()
                await self._has_entries.wait()
            await self._write_some()

    def give_up(self) -> None:
        """The controller has resigned: revert unacknowledged decisions, and refuse their
        requests.
        """
        self._is_over = True
        given_up = [*self._undone, *self._entries]
        self._undone, self._entries = deque(), deque()
        self._revert()
        for entry in given_up:
            if entry.on_given_up is not None:
                entry.on_given_up(ErrorCode.NOT_CONTROLLER)

    def _write(
        self,
        records: Sequence[Message],
        facts: Sequence[Event],
        on_committed: OnCommitted | None,
        on_given_up: Callable[[ErrorCode], None] | None,
        again: Callable[[], None] | None,
        *,
        is_learned: bool = False,
    ) -> None:
        self.has_written.set()
        if self._is_over:
            if on_given_up is not None:
                on_given_up(ErrorCode.NOT_CONTROLLER)
            return
        first_offset = self._next_offset
        writes = self._replay(records, is_learned=is_learned)
        offsets = (
            AppendedOffsets(first_offset=first_offset, last_offset=self._next_offset - 1)
            if records
            else None
        )

        def on_commit() -> None:
            for fact in facts:
                self._world.emit(fact)
            if on_committed is not None:
                on_committed(offsets)

        if not records and not self._entries:
            on_commit()
            return
        self._entries.append(
            _Entry(records, writes, self._next_offset, on_commit, on_given_up, again)
        )
        self._has_entries.set()

    async def _write_some(self) -> None:
        """Write the oldest entries in one batch, and process the outcome."""
        batch = list(self._next_batch())
        writes = [write for entry in batch for write in entry.writes]
        if writes:
            try:
                await self._carry(writes)
            except ZookeeperRefused as refused:
                await self._resolve_conflict(refused)
                return
        await self._world.yield_point(YieldPoint.ZOOKEEPER_WRITE_ACKNOWLEDGED)
        for entry in batch:
            if not self._entries or self._entries[0] is not entry:
                return  # the controller resigned meanwhile
            self._entries.popleft()
            self.state.commit_through(entry.next_offset - 1)
            self._applied_offset = entry.next_offset
            self._apply(entry.records)
            entry.on_commit()

    def _next_batch(self) -> Iterator[_Entry]:
        """Yield the oldest entries. The effect of PUT, DROP and DELETE_TREE depends on the state
        before the batch: an entry that touches what another one deletes waits for the next batch.
        """
        size = 0
        touched: dict[str, None] = {}
        deleted: dict[str, None] = {}
        for entry in list(self._entries):
            size += sum(len(write.path) + len(write.data or b"") for write in entry.writes)
            about, gone = _places(entry.writes)
            is_first = entry is self._entries[0]
            if not is_first and (
                size > BYTES_MAX
                or not touched.keys().isdisjoint(gone)
                or not deleted.keys().isdisjoint(about)
            ):
                return
            touched |= dict.fromkeys(about)
            deleted |= dict.fromkeys(gone)
            yield entry

    async def _resolve_conflict(self, refused: ZookeeperRefused) -> None:
        """Another node has written a znode: revert, read it again, and repeat the decisions that
        can be repeated.
        """
        if self.reload is None:
            raise ControllerMoved(f"{refused.path} was changed by another node") from refused
        self._undone, self._entries = self._entries, deque()
        self._revert()
        self.learn(await self.reload(refused.path))  # the controller may resign here
        entries, self._undone = self._undone, deque()
        for entry in entries:
            if entry.again is not None:
                entry.again()
            elif entry.on_given_up is not None:
                entry.on_given_up(ErrorCode.UNKNOWN_SERVER_ERROR)
        self.on_conflict()

    def _revert(self) -> None:
        if self._next_offset == self._applied_offset:
            return
        self.state.revert_to(self._applied_offset)
        self._world.emit(MetadataReverted(to_offset=self._applied_offset))

    def _apply(self, records: Sequence[Message]) -> None:
        for record in records:
            self.image.replay(record, self.image.highest_offset + 1)
        self._on_applied(records)

    def _replay(self, records: Sequence[Message], *, is_learned: bool = False) -> list[ZnodeWrite]:
        """Replay records, and return their znode writes; none for learned records."""
        writes = _Writes()
        for record in records:
            before = self._before(record)
            if isinstance(record, RemoveTopicRecord) and not is_learned:
                writes.found += self._removal(record.topic_id)
            self.state.replay(record, self._next_offset)
            self._next_offset += 1
            if not is_learned:
                self._add_writes(writes, record, before)
        return [*self._topics(writes), *writes.found]

    def _before(self, record: Message) -> PartitionRegistration | None:
        return (
            self.state.replication.topics.partition((record.topic_id, record.partition_id))
            if isinstance(record, PartitionRecord)
            else None
        )

    def _add_writes(
        self, writes: _Writes, record: Message, before: PartitionRegistration | None
    ) -> None:
        match record:
            case TopicRecord():
                writes.made[record.topic_id] = None
            case PartitionRecord():
                self._add_partition(writes, record, before)
            case FeatureLevelRecord():
                levels = {
                    name: level
                    for name, level in self.state.features.finalized.items()
                    if name != "metadata.version"
                }
                data = FeatureZnode(levels=levels, version=self.feature_version).build()
                writes.found.append(ZnodeWrite(kind=WriteKind.SET, path=FEATURE, data=data))

    def _add_partition(
        self, writes: _Writes, record: PartitionRecord, before: PartitionRegistration | None
    ) -> None:
        topic = self._facts.topic_by_id(record.topic_id)
        after = self.state.replication.topics.partition((record.topic_id, record.partition_id))
        assert topic is not None and after is not None, "it was just replayed"
        path = state_path(topic.name, record.partition_id)
        if before is None or assignment_of(before) != assignment_of(after):
            writes.changed[record.topic_id] = None
        if after.partition_epoch == NOT_MADE or (
            before is not None and before.partition_epoch == after.partition_epoch
        ):
            return  # only its replicas changed
        text = state_text(after, self.controller_epoch)
        parent = f"{topic_path(topic.name)}/partitions"
        if before is not None and before.partition_epoch != NOT_MADE:
            writes.found.append(
                ZnodeWrite(kind=WriteKind.SET, path=path, data=text, version=before.partition_epoch)
            )
            return
        kind = (
            WriteKind.CREATE if before is None else WriteKind.PUT
        )  # the creation of the topic wrote only the topic znode
        if before is not None or record.topic_id in writes.made:
            writes.parents[parent] = None
            writes.found += (
                [ZnodeWrite(kind=kind, path=parent)]
                if len(writes.parents) > writes.parent_count
                else []
            )
            writes.parent_count = len(writes.parents)
        writes.found.append(ZnodeWrite(kind=kind, path=f"{parent}/{record.partition_id}"))
        writes.found.append(ZnodeWrite(kind=WriteKind.CREATE, path=path, data=text))

    def _topics(self, writes: _Writes) -> Iterator[ZnodeWrite]:
        """Yield the writes of topic znodes (partition assignments), configs of new topics first."""
        for topic_id in {**writes.made, **writes.changed}:
            topic = self._facts.topic_by_id(topic_id)
            if topic is None:
                continue
            if topic_id in writes.made:
                configs = self.state.configs.configs_of(TOPIC_RESOURCE, topic.name)
                yield ZnodeWrite(
                    kind=WriteKind.PUT,
                    path=config_path("topics", topic.name),
                    data=build_config(configs),
                )
                yield ZnodeWrite(
                    kind=WriteKind.CREATE, path=topic_path(topic.name), data=topic_text(topic)
                )
            else:
                yield ZnodeWrite(
                    kind=WriteKind.SET, path=topic_path(topic.name), data=topic_text(topic)
                )

    def _removal(self, topic_id: bytes) -> Iterator[ZnodeWrite]:
        topic = self._facts.topic_by_id(topic_id)
        assert topic is not None, "only existing topics are removed"
        yield ZnodeWrite(kind=WriteKind.DELETE_TREE, path=topic_path(topic.name))
        yield ZnodeWrite(kind=WriteKind.DROP, path=config_path("topics", topic.name))
        yield ZnodeWrite(kind=WriteKind.DROP, path=delete_topic_path(topic.name))


def without_ids(records: Sequence[Message]) -> Sequence[Message]:
    """Return records with the ids of new topics removed."""
    ids = {
        record.topic_id: derived_topic_id(record.name)
        for record in records
        if isinstance(record, TopicRecord)
    }
    for record in records:
        if isinstance(record, TopicRecord | PartitionRecord):
            record.topic_id = ids.get(record.topic_id, record.topic_id)
    return records


def pass_on(inner: Deferred, outer: Deferred) -> None:
    """Complete a deferred answer with that of another one."""
    if inner.answer is not None:
        outer.complete(inner.answer)
        return

    def complete() -> None:
        assert inner.answer is not None, "called once the answer is complete"
        outer.complete(inner.answer)

    inner.attach(complete)


def _places(writes: Sequence[ZnodeWrite]) -> tuple[list[str], list[str]]:
    """Return the places (topics, entities) that writes touch, and those that they delete."""
    about = [(_place(write.path), write.kind) for write in writes]
    gone = [
        place
        for place, kind in about
        if kind in (WriteKind.DELETE_TREE, WriteKind.DELETE, WriteKind.DROP)
    ]
    return [place for place, _ in about], gone


def _place(path: str) -> str:
    """Return the first levels of a path: /brokers/topics/TOPIC, /config/topics/TOPIC,
    /admin/delete_topics/TOPIC.
    """
    return "/".join(path.split("/", 4)[:4])

"""Runs a replica of the metadata log: passes inputs to the Raft rules, and executes their effects
in one queue.

Why one queue. Raft is correct if three things happen in order: what a replica has promised (its
vote, its epoch) is on disk before another node can see it; writes happen in the order of decisions;
and a response is true of the state that it reports. Kafka gets this from one thread. Here the rules
(`rules_replica.RaftReplica`) are pure: every input, a request, a response, a failed connection, a
completed flush or a timer, makes them append effects to a list, and this class executes the effects
in their order, one at a time. The order in the queue is the only thing that has to be right, and
the rules determine it: `Persist` first, then writes, then `Reply` and `Send`.

Durability is a barrier in the queue. `Persist`, `Truncate` and `FinishSnapshot` stop it until the
disk has confirmed (`_hold`). Meanwhile the rules accept inputs and decide further, on state that is
not durable yet; their effects line up behind the barrier. State may run ahead of the disk, messages
may not: so no response can leave too early, whichever rule made it. A handler that reads state
instead of asking for an effect (Fetch) uses `when_durable`: at once if nothing is queued, else
behind the queue, and again behind it if another `Persist` was queued meanwhile.

Flushes of the log run beside the queue. That is safe because the rules know what is flushed
(`on_flushed` is an input): a leader counts its own log up to there, and a follower that votes does
not fetch, which would acknowledge, before. One flush covers everything written since the last one
began (`_flush_forever`): group commit without a delay.

A leader appends without an effect. `append` requires an empty queue, assigns the offset, and
writes; the caller replays and calls `on_written`, from which on the records may be committed. An
active leader has no effects pending, because every input runs the queue to its end (`run`); a call
of `run` from inside an effect returns at once, and the outer loop sees `_has_news`.

Applying is a task of its own (`_apply_forever`), because a listener may take long: committed
batches are passed one piece at a time, from the log or the latest ones (`FreshBatches`). `Lead`
does not start leadership: `on_lead` is called when everything before the epoch has been applied, if
the node still leads then. From there to `on_stop_leading` the listener gets nothing, as this node
has replayed its records when it wrote them.

Failure. After a failed write or flush no content of the disk can be trusted: the node stops, and
answers nothing more (`fail_disk`). So does any other exception: the effects left in the queue will
never be executed, and the rules believe that they were.

Traps. A truncation must be durable before anything is written behind it, or a crash leaves a
mixture of both logs. A Fetch that waits while an epoch comes must not report it before it is on
disk: waiting fetches are woken by an effect, not by the decision. The cache of fetched batches ends
where this replica wrote as leader. A replica whose next offset was deleted loads the snapshot
(`_due_snapshot`). Once `stop` has flushed, no input may be accepted: the recovery point is the end
of the log. A sole voter passes through three roles in one poll: a `Persist` that is followed by
another, with nothing visible in between, is skipped.
Source: org.apache.kafka.raft.KafkaRaftClient, KafkaRaftClientDriver.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from kraftsim.raft import rules_effects as do
from kraftsim.raft.events import MetadataFlushed
from kraftsim.raft.metadata_store import DIRECTORY, DamagedSnapshot, MetadataStore
from kraftsim.raft.quorum_settings import static_voters
from kraftsim.raft.raft_connections import RaftConnections
from kraftsim.raft.rules_effects import WriteFetched, WriteLeaderChange, WriteVoters
from kraftsim.raft.rules_log import SnapshotId
from kraftsim.raft.rules_quorum import FatalQuorumError, LeadershipFactory, Quorum
from kraftsim.raft.rules_replica import RaftReplica
from kraftsim.raft.rules_roles import Leadership
from kraftsim.raft.rules_settings import RaftSettings
from kraftsim.raft.rules_voters import Address, ReplicaKey, VoterNode
from kraftsim.server.events import DiskFailed
from kraftsim.server.outbound import VersionRange
from kraftsim.server.shell import NodeShell
from kraftsim.server.tasks import Signal
from kraftsim.world.interface import YieldPoint
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchResponse
from protocol.records.batches import RecordBatch, split_batches
from protocol.records.control_records import (
    ControlType,
    KRaftVersionRecord,
    LeaderChangeMessage,
    Voter,
    build_control_batch,
)
from protocol.schema import Message
from protocol.storage.quorum_state import QuorumState

# --------------------------------------------------------------------------------------------------
# Callbacks of a node for its replica of the metadata log
#
# Every node with a replica follows the committed log; only a controller can become leader.
# Source: org.apache.kafka.raft.RaftClient.Listener.


class MetadataListener(Protocol):
    """Follows the log.

    Batches and snapshots are passed one at a time; the next call is made after the previous one has
    returned.
    """

    async def on_committed(self, batches: Sequence[RecordBatch]) -> None:
        """Process committed batches, in order and without gaps, including control batches."""
        ...

    async def on_snapshot(self, snapshot: SnapshotId, batches: Iterator[RecordBatch]) -> None:
        """Replace all state by a snapshot.

        Batches that follow start at its end offset, or before it: earlier ones must be skipped.
        """
        ...

    def on_leader(self, leader_epoch: int, leader: VoterNode | None) -> None:
        """The leader changed; None: the leader is unknown."""
        ...


class LeaderDuties(Protocol):
    """Duties of the leader. Between `on_lead` and `on_stop_leading` committed batches are not
    passed to the listener: this node wrote them itself.
    """

    def on_lead(self, leader_epoch: int) -> None:
        """Everything in the log is committed and was passed to the listener: act as the active
        controller of an epoch.
        """
        ...

    def on_stop_leading(self, leader_epoch: int, reason: str, high_watermark: int) -> None:
        """Another epoch has begun: revert everything from the high watermark on. Records that are
        committed after all are passed to the listener.
        """
        ...

    def on_high_watermark(self, high_watermark: int) -> None:
        """Everything below the high watermark is committed; called while this node is leader."""
        ...

    def on_readable(self, *, is_committed: bool) -> None:
        """Pending fetches may be completed: records were committed or only written, or this node is
        no longer leader.
        """
        ...

    def on_lost(self, reason: str, high_watermark: int) -> None:
        """The disk failed: revert what is not committed, without answering requests.

        The node stops after this call.
        """
        ...


# --------------------------------------------------------------------------------------------------
# Cache of the latest fetched batches until they are committed: they usually commit with the next
# response, so the log need not be read back.

BYTES_MAX: Final = 256 * 1024
BATCHES_MAX: Final = 64
"""Batches beyond this limit are read from disk when they commit."""


class FreshBatches:
    """The gapless end of the log, or nothing."""

    def __init__(self) -> None:
        self._batches: deque[RecordBatch] = deque()

    def keep(self, written: WriteFetched) -> None:
        """Cache the batch just written, unless too many are cached."""
        if len(self._batches) >= BATCHES_MAX or len(written.records) > BYTES_MAX:
            self._batches.clear()
        if len(written.records) <= BYTES_MAX:
            self._batches.extend(written.batches)

    def take(self, offset: int, committed: int) -> tuple[RecordBatch, ...]:
        """Return the committed batches from an offset on, up to the first one that is not cached,
        such as those written by this replica as leader.
        """
        batches = self._batches
        while batches and batches[0].base_offset < offset:
            batches.popleft()
        found: list[RecordBatch] = []
        while batches and batches[0].base_offset == offset and batches[0].next_offset <= committed:
            offset = batches[0].next_offset
            found.append(batches.popleft())
        return tuple(found)

    def clear(self) -> None:
        """The log was truncated or replaced."""
        self._batches.clear()


# --------------------------------------------------------------------------------------------------
# Control batches that a leader writes about the quorum itself. Source: KIP-595, KIP-853,
# org.apache.kafka.raft.internals.BatchAccumulator.


def leader_change_batch(effect: WriteLeaderChange, leader_id: int, timestamp: int) -> bytes:
    """Return the batch that opens an epoch.

    All releases write version 0 of LeaderChange, without directory ids.
    """
    opening = LeaderChangeMessage(
        version=0,
        leader_id=leader_id,
        voters=[Voter(voter_id=key.id) for key in effect.voters],
        granting_voters=[Voter(voter_id=key.id) for key in effect.granting],
    )
    records: list[tuple[ControlType, Message]] = [(ControlType.LEADER_CHANGE, opening)]
    if effect.kraft_version is not None:
        records.append(
            (ControlType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=effect.kraft_version))
        )
    if effect.voters_record is not None:
        records.append((ControlType.KRAFT_VOTERS, effect.voters_record))
    return build_control_batch(
        records,
        base_offset=effect.first_offset,
        timestamp=timestamp,
        leader_epoch=effect.leader_epoch,
    )


def voters_batch(effect: WriteVoters, timestamp: int) -> bytes:
    """Return the batch that changes the voter set."""
    records: list[tuple[ControlType, Message]] = [(ControlType.KRAFT_VOTERS, effect.voters_record)]
    return build_control_batch(
        records,
        base_offset=effect.first_offset,
        timestamp=timestamp,
        leader_epoch=effect.leader_epoch,
    )


APPLY_BYTES = 256 * 1024
"""The bytes of the log applied at a time; other tasks of the node run in between."""
STOP_MS = 5000
"""How long a resigning leader waits for the other voters to learn of it.

Source: KafkaRaftClient's shutdown timeout.
"""
FAR_MS = 1 << 40  # a time that is never reached
Ticket = Callable[[Message], None]  # callback of a request, receives the response


class RaftNode:
    """A replica: `load`, `begin`, then `transfer_leadership`, `stop` and `close`, or `abort`.

    Handlers use `ask`, `when_durable`, `quorum`.
    """

    quorum: Quorum
    replica: RaftReplica

    def __init__(
        self,
        shell: NodeShell,
        *,
        directory_id: bytes,
        own_versions: Mapping[int, VersionRange],
        settings: RaftSettings,
        listener: MetadataListener,
        duties: LeaderDuties | None = None,
        leadership: LeadershipFactory = Leadership,
        new_quorum: Callable[..., Quorum] = Quorum,
    ) -> None:
        self._shell = shell
        self.now_ms, self.wall_ms = shell.world.clock.monotonic_ms, shell.world.clock.wall_ms
        """Return the monotonic clock, for all quorum timers, and the wall clock, for
        DescribeQuorum.
        """
        self._config = shell.config
        self._key = ReplicaKey(shell.config.node_id, directory_id)
        self._settings = settings
        self._listener = listener
        self._duties = duties
        self._leadership = leadership
        self._new_quorum = new_quorum
        self._must_flush = Signal()
        self.store = MetadataStore(
            shell.world,
            shell.config,
            on_rolled=self._must_flush.set,
            has_recovery_point=duties is not None,
        )
        self.own_endpoints: dict[str, Address] = {}
        """The advertised address of this replica per listener; set before it is announced."""
        self.high_watermark: int | None = None
        """The first offset that is not known to be committed, as of the executed effects."""
        self.on_grown: Callable[[], None] | None = None
        """Called whenever the high watermark advances: snapshot writers use it."""
        self._connections = RaftConnections(shell, own_versions, self._on_answer, self._on_failure)
        self._queue: deque[do.Effect | Callable[[], None]] = deque()
        self._is_holding = False
        self._is_running = False
        self._has_news = False  # whether the rules received input since the last poll
        self._is_over = False
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_ms = 0
        self._may_apply = Signal()
        self._has_stopped = asyncio.Event()
        self._applied_end_offset = 0
        self._fresh = FreshBatches()
        self._snapshot_to_load: SnapshotId | None = None
        self._epoch_to_lead: int | None = None
        self._led_epoch: int | None = None
        self._persisted: QuorumState | None = None
        self.trouble: str | None = None
        """Why the last Fetch was refused as a whole, for example by the quorum of another
        cluster.
        """
        self.installed_count = 0
        """How often a snapshot of the leader replaced the log."""
        self.superseded: list[SnapshotId] = []
        """Snapshots superseded by an installed one, still on disk."""

    # State
    # ----------------------------------------------------------------------------------------------

    @property
    def is_active(self) -> bool:
        """Whether this node is leader and its duties have started; the rules may already know that
        it lost leadership.
        """
        return (
            self._led_epoch is not None
            and self.replica.is_leader
            and self.quorum.epoch == self._led_epoch
        )

    @property
    def leader_epoch(self) -> int:
        """The highest epoch known to this replica."""
        return self.quorum.epoch

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.quorum.log.end_offset

    @property
    def applied_end_offset(self) -> int:
        """The first offset that was not passed to the listener (or written by it)."""
        return self.log_end_offset if self._led_epoch is not None else self._applied_end_offset

    @property
    def is_settled(self) -> bool:
        """Whether everything in the log is committed."""
        return self.high_watermark == self.log_end_offset

    # Replica lifecycle
    # ----------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Recover everything. Raises ConfigError, OSError."""
        config = self._config
        found = await self.store.load(static_voters(config))
        self.quorum = self._new_quorum(
            own=self._key,
            cluster_id=config.cluster_id,
            listener=config.controller_listener_names[0],
            own_endpoints=self.own_endpoints,
            settings=self._settings,
            log=found.log,
            voters=found.voters,
            bootstrap=[
                Address(host, port) for host, port in config.controller_quorum_bootstrap_servers
            ],
            draw=self._shell.world.random("elections").randrange,
            emit=self._shell.world.emit,
            leadership=self._leadership,
        )
        self.replica = RaftReplica(self.quorum)
        self._persisted = found.quorum_state
        latest = found.log.latest_snapshot
        if latest is not None:
            self._snapshot_to_load = latest

    def begin(self) -> None:
        """Resume from the recovered state: from now on requests are answered."""
        self.replica.begin(self._persisted, self.now_ms())
        self._record_flushed(self.log_end_offset)
        self._shell.tasks.spawn(self._flush_forever(), "flush-metadata-log")
        self._shell.tasks.spawn(self._apply_forever(), "apply-metadata-log")
        self._may_apply.set()

    async def flush(self) -> None:
        """Flush what was written, and commit it where that is enough."""
        try:
            flushed_end_offset = await self.store.flush()
        except OSError as refused:
            self.fail_disk("flush", refused)
        else:
            self._record_flushed(flushed_end_offset)
            self.replica.on_flushed(flushed_end_offset)
            self.run()

    def is_migration_ready(self, node_id: int) -> bool | None:
        """Return whether another voter reported that it is ready for a migration from ZooKeeper;
        None while there is no connection to it.
        """
        return self._connections.is_migration_ready(node_id)

    async def transfer_leadership(self) -> None:
        """Resign, and wait until the other voters know; at most a few seconds, because they may all
        be down.
        """
        self.replica.stop()
        self.run()
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_MS / 1000):
                await self._has_stopped.wait()

    async def stop(self) -> None:
        """Flush the log and end all pending work.

        Call `transfer_leadership` before. Raises OSError.
        """
        await self.flush()
        if self._is_over:
            return  # the disk failed
        self._is_over = True  # no more input: the flush below covers everything
        self._disarm()
        self._connections.close()
        await self.store.store_recovery_point(await self.store.flush())

    def close(self) -> None:
        """Close the files, after `stop` or when startup fails."""
        self._is_over = True
        self.store.close()

    def abort(self) -> None:
        """Stop immediately, as a killed process would."""
        self._is_over = True
        self._disarm()
        self._connections.abort()
        self.store.abort()

    # Inputs
    # ----------------------------------------------------------------------------------------------

    def ask(self, request: Message, answer: Ticket) -> None:
        """Process a request of another replica or of a tool; `answer` is called once the response
        content is durable, if ever.
        """
        if self._is_over:
            return
        try:
            self.replica.on_request(request, answer, self.now_ms())
        except FatalQuorumError as fatal:
            self._fail(fatal)
        else:
            self.run()

    def when_durable(self, action: Callable[[], None]) -> None:
        """Run an action as soon as all earlier decisions are durable: usually immediately."""
        if self._is_holding or self._is_running:
            # Decisions made while it waits must be durable, too, because the action sees the state
            # at that time.
            self._queue.append(
                lambda: (
                    self.when_durable(action)
                    if any(isinstance(step, do.Persist) for step in self._queue)
                    else action()
                )
            )
        else:
            action()

    def append(self, batch: bytes, record_count: int, record_kinds: str) -> None:
        """Append the batch that was built for `log_end_offset` in this epoch.

        Then replay it and call `on_written`. For the active controller.
        """
        if self._is_over:
            raise OSError("this replica has failed")  # the first failure is the one to report
        assert self.is_active and not self._queue, "an active leader has no pending effects"
        first_offset = self.replica.append(record_count, record_kinds)
        assert first_offset == self.store.log_end_offset, (
            f"a batch for {first_offset} would stand at {self.store.log_end_offset}"
        )
        try:
            self.store.append(batch)
        except OSError as refused:
            self.fail_disk("write", refused)
            raise

    def on_written(self) -> None:
        """The appended records are replayed: from here on they may be committed."""
        self.replica.on_written()
        self.run()

    def run(self) -> None:
        """Execute everything that is due.

        Call after anything that may have changed the quorum's state.
        """
        self._has_news = True
        if self._is_running or self._is_over:
            return
        self._is_running = True
        try:
            self._carry_out_all()
        except OSError as refused:
            self.fail_disk("write", refused)
        except Exception as mistake:  # the remaining effects in the queue will never be executed
            self._fail(mistake)
        finally:
            self._is_running = False

    def _on_answer(self, number: int, body: Message) -> None:
        if self._is_over:
            return
        if isinstance(body, FetchResponse):
            self.trouble = (
                f"the quorum answered Fetch with {ErrorCode(body.error_code).name}"
                if body.error_code
                else None
            )
        try:
            self.replica.on_response(number, body, self.now_ms())
        except FatalQuorumError as fatal:
            self._fail(fatal)
        else:
            self.run()

    def _on_failure(self, number: int, is_unsupported: bool) -> None:
        if not self._is_over:
            self.replica.on_failure(number, self.now_ms(), is_unsupported=is_unsupported)
            self.run()

    # Effects
    # ----------------------------------------------------------------------------------------------

    def _carry_out_all(self) -> None:
        queue, replica, quorum = self._queue, self.replica, self.replica.quorum
        while self._has_news and not self._is_over:
            self._has_news = False
            wake_ms = replica.poll(self.now_ms())
            if quorum.effects:
                queue.extend(replica.take_effects())
            while queue and not self._is_holding and not self._is_over:
                step = queue.popleft()
                if callable(step):
                    self._has_news = True
                    step()
                else:
                    self._carry_out(step)
                if quorum.effects:
                    self._has_news = True
                    queue.extend(replica.take_effects())
        if self._is_over:
            return
        if quorum.is_stopping and replica.has_stopped:
            self._has_stopped.set()
        if self._alarm is None or wake_ms < self._alarm_ms:
            self._arm(wake_ms)

    def _carry_out(self, effect: do.Effect) -> None:
        """Execute an effect of log growth; checked first, because nearly all effects are of this
        kind.
        """
        match effect:
            case do.Flush():
                self._must_flush.set()
            case do.Advance():
                self._advance(effect.high_watermark)
            case do.Send():
                self._connections.send(effect)
            case do.WriteFetched():
                self.store.append_opened(effect.batches)
                self._fresh.keep(effect)
            case do.WakeFetches():
                if self._duties is not None:
                    self._duties.on_readable(is_committed=False)
            case do.Reply():
                # operator: a ticket is opaque to the rules; this node's are callbacks
                effect.ticket(effect.body)  # type: ignore[operator]
            case do.Persist() | do.Truncate() | do.FinishSnapshot():
                self._carry_out_durably(effect)
            case _:
                self._carry_out_seldom(effect)

    def _carry_out_durably(self, effect: do.Persist | do.Truncate | do.FinishSnapshot) -> None:
        """Execute an effect that everything else waits for."""
        match effect:
            case do.Persist() if self._is_followed_by_persist():
                pass
            case do.Persist():
                self._hold(
                    partial(self.store.store_quorum_state, effect.state, effect.data_version),
                    "persist-quorum-state",
                )
            case do.Truncate():
                self._fresh.clear()
                self._hold(
                    partial(self.store.truncate_to, effect.end_offset), "truncate-metadata-log"
                )
            case do.FinishSnapshot():
                self._hold(partial(self._install, effect.snapshot), "install-snapshot")

    def _carry_out_seldom(self, effect: do.Effect) -> None:
        """Execute an effect of a new epoch or a new leader."""
        match effect:
            case do.EmitEvent():
                self._shell.world.emit(effect.event)
            case do.WriteLeaderChange():
                self.store.append(leader_change_batch(effect, self._key.id, self.wall_ms()))
            case do.WriteVoters():
                self.store.append(voters_batch(effect, self.wall_ms()))
            case do.WriteSnapshotPiece():
                self.store.snapshots.write_piece(effect.snapshot, effect.position, effect.piece)
            case do.LeaderKnown():
                self._listener.on_leader(effect.leader_epoch, effect.leader)
            case do.Lead():
                self._epoch_to_lead = effect.leader_epoch
                self._may_apply.set()
            case do.StopLeading():
                self._epoch_to_lead = None
                if self._led_epoch is not None and self._duties is not None:
                    self._led_epoch = None
                    self._applied_end_offset = self.high_watermark or 0
                    self._duties.on_stop_leading(
                        effect.leader_epoch, effect.reason, self._applied_end_offset
                    )
                    self._may_apply.set()
            case unknown:
                raise AssertionError(f"{type(unknown).__name__} is not an effect")

    def _is_followed_by_persist(self) -> bool:
        """Return whether another state is written next, before this one is visible: a sole voter
        passes through three states.
        """
        following = next(
            (
                effect
                for effect in self._queue
                if not isinstance(effect, do.LeaderKnown | do.EmitEvent)
            ),
            None,
        )
        return isinstance(following, do.Persist)

    def _advance(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        if self.on_grown is not None:
            self.on_grown()
        if self._duties is not None:
            if self._led_epoch is not None:
                self._duties.on_high_watermark(high_watermark)
            self._duties.on_readable(is_committed=True)
        if self._led_epoch is None:
            self._may_apply.set()

    def _hold(self, work: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        """Block the queue until a step is durable."""
        self._is_holding = True
        self._shell.tasks.spawn(self._held(work, name), name)

    async def _held(self, work: Callable[[], Coroutine[None, None, None]], name: str) -> None:
        try:
            await work()
        except OSError as refused:
            self.fail_disk(name, refused)
            return
        await self._shell.world.yield_point(YieldPoint.METADATA_FLUSHED)
        self._is_holding = False
        self.run()

    async def _install(self, snapshot: SnapshotId) -> None:
        try:
            voters, kraft_version = await self.store.install(snapshot)
        except DamagedSnapshot as damaged:
            self._shell.world.emit(
                DiskFailed(path=DIRECTORY, operation="read", reason=str(damaged))
            )
            self.replica.on_snapshot_damaged(self.now_ms())
            return
        self._fresh.clear()
        self.superseded += self.replica.on_snapshot_installed(snapshot, voters, kraft_version)
        self.high_watermark = self.quorum.log.high_watermark
        self._snapshot_to_load = snapshot
        self.installed_count += 1
        self._may_apply.set()

    async def _flush_forever(self) -> None:
        """Flush whenever something was written; writes made meanwhile share the next flush."""
        while True:
            await self._must_flush.wait()
            await self._shell.world.yield_point(YieldPoint.METADATA_WRITTEN)
            await self.flush()

    def _record_flushed(self, end_offset: int) -> None:
        flushed = min(end_offset, self.quorum.log.end_offset)
        self._shell.world.emit(MetadataFlushed(end_offset=flushed, is_voter=self.quorum.is_voter))

    # Applying committed batches
    # ----------------------------------------------------------------------------------------------

    async def _apply_forever(self) -> None:
        while True:
            await self._may_apply.wait()
            try:
                while await self._apply_next():
                    await asyncio.sleep(0)
                    await self._shell.world.yield_point(YieldPoint.COMMITTED_BATCH_APPLIED)
            except OSError as refused:
                self.fail_disk("read", refused)
                return

    async def _apply_next(self) -> bool:
        """Pass the next committed batches to the listener, or start leading once there are none;
        return whether there may be more to do.
        """
        snapshot = self._due_snapshot()
        if snapshot is not None:
            self._snapshot_to_load = None
            await self._listener.on_snapshot(snapshot, self.store.snapshots.read(snapshot))
            self._applied_end_offset = snapshot.end_offset
            return True
        if self._led_epoch is not None:
            return False
        committed = self.high_watermark or 0
        if self._applied_end_offset < committed:
            offset = self._applied_end_offset
            batches = self._fresh.take(offset, committed) or tuple(
                split_batches(self.store.read(offset, APPLY_BYTES, committed))
            )
            is_whole = (
                bool(batches)
                and batches[0].base_offset <= offset
                and batches[-1].next_offset <= committed
            )
            assert is_whole, f"the log has no whole batches from {offset} to {committed}"
            await self._listener.on_committed(batches)
            self._applied_end_offset = batches[-1].next_offset
            if self._applied_end_offset != self.high_watermark:
                return True
        if (
            self._epoch_to_lead is not None
            and self.replica.is_leader
            and self.quorum.epoch == self._epoch_to_lead
            and self._duties is not None
        ):
            self._led_epoch, self._epoch_to_lead = self._epoch_to_lead, None
            self._duties.on_lead(self._led_epoch)
        return False

    def _due_snapshot(self) -> SnapshotId | None:
        """Return the latest snapshot, if it was recovered, installed, or is needed as the next
        offset was deleted.

        Source: KafkaRaftClient.
        """
        log = self.quorum.log
        is_behind = self._led_epoch is None and self._applied_end_offset < log.start_offset
        return log.latest_snapshot if is_behind or self._snapshot_to_load is not None else None

    # Timers and failures
    # ----------------------------------------------------------------------------------------------

    def _arm(self, wake_ms: int) -> None:
        """Schedule the next run.

        An early alarm is harmless, so the alarm is only moved to an earlier time.
        """
        self._disarm()
        now_ms = self.now_ms()
        if wake_ms - now_ms < FAR_MS:
            self._alarm_ms = wake_ms
            self._alarm = asyncio.get_running_loop().call_later(
                max(0, wake_ms - now_ms) / 1000, self._on_alarm
            )

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _on_alarm(self) -> None:
        self._alarm = None
        self.run()

    def fail_disk(self, operation: str, refused: OSError) -> None:
        """After a failed write or flush the disk cannot be trusted: stop the node."""
        if self._is_over:
            return
        self._is_over = True
        if self._duties is not None:
            self._duties.on_lost(f"the metadata log is lost: {refused}", self.high_watermark or 0)
        self._shell.fail_disk(DIRECTORY, operation, refused)

    def _fail(self, fatal: Exception) -> None:
        self._is_over = True
        self._shell.fail(fatal)

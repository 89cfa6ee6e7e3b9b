"""A simulated quorum: replicas of the metadata log, a network that delays, loses and duplicates,
disks that lose unflushed data, and one seed.

The rules run without a node, so every defect found here is one of the rules. The invariants are
checked after every step.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from kraftsim.events.event import Event
from kraftsim.partitions.rules_log import LeaderEpochs
from kraftsim.raft import rules_effects as do
from kraftsim.raft import rules_serving
from kraftsim.raft.rules_following import take_control_records
from kraftsim.raft.rules_log import RaftLog, SnapshotId
from kraftsim.raft.rules_quorum import Quorum
from kraftsim.raft.rules_replica import RaftReplica
from kraftsim.raft.rules_roles import Leader
from kraftsim.raft.rules_settings import RaftSettings
from kraftsim.raft.rules_voters import Address, ReplicaKey, VoterHistory, VoterNode, VoterSet
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchRequest
from protocol.messages.k18_api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from protocol.messages.k59_fetch_snapshot import FetchSnapshotRequest
from protocol.records.batches import RecordBatch, build_batch, split_batches
from protocol.records.control_records import (
    ControlType,
    KRaftVersionRecord,
    LeaderChangeMessage,
    Voter,
    build_control_batch,
)
from protocol.records.record import Record
from protocol.schema import Message
from protocol.storage.quorum_state import QuorumState

CLUSTER = "lab"
LISTENER = "CONTROLLER"


@dataclass
class HarnessDisk:
    """The durable state of a replica.

    Batches are atomic; only those before `flushed` survive a power loss.
    """

    state: QuorumState | None = None
    batches: list[bytes] = field(default_factory=list)
    flushed: int = 0
    start_offset: int = 0
    snapshots: dict[SnapshotId, bytes] = field(default_factory=dict)

    def end_offset(self) -> int:
        return (
            next(split_batches(self.batches[-1])).next_offset if self.batches else self.start_offset
        )


class HarnessNode:
    """One replica, its disk, and the driver around it."""

    def __init__(self, harness: "Harness", node_id: int) -> None:
        self.harness = harness
        self.id = node_id
        self.key = ReplicaKey(node_id, bytes([node_id]) * 16 if harness.is_dynamic else bytes(16))
        self.disk = HarnessDisk()
        self.replica: RaftReplica | None = None
        self.incarnation = 0
        self.waiting: list[do.Effect] = []
        self.is_persisting = False
        self.parked: list[tuple[FetchRequest, Callable[[Message], None], int]] = []
        self.wake_ms = 0
        self.leads = False

    def start(self) -> None:
        """Load the disk and start."""
        self.incarnation += 1
        self.waiting, self.parked, self.is_persisting, self.leads = [], [], False, False
        epochs = LeaderEpochs()
        voters = VoterHistory(VoterSet() if self.harness.is_dynamic else self.harness.static_voters)
        for batch in self._read_back():
            epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        log = RaftLog(
            start_offset=self.disk.start_offset,
            end_offset=self.disk.end_offset(),
            epoch_starts=epochs.starts,
            snapshots=list(self.disk.snapshots),
        )
        quorum = Quorum(
            own=self.key,
            cluster_id=CLUSTER,
            listener=LISTENER,
            own_endpoints={LISTENER: address_of(self.id)},
            settings=self.harness.settings,
            log=log,
            voters=voters,
            bootstrap=[address_of(other) for other in self.harness.nodes if other != self.id]
            if self.harness.is_dynamic
            else (),
            draw=self.harness.random.randrange,
            emit=lambda event: self.harness.emit(self, event),
        )
        if self.harness.is_dynamic and self.id in self.harness.formatted:
            voters.add_version(-1, 1)
            voters.add_voters(
                -1, VoterSet(harness_voter(self.harness, other) for other in self.harness.formatted)
            )
        for snapshot in sorted(self.disk.snapshots):
            named = self.harness.voters_in_snapshots.get(snapshot)
            if named is not None:
                voters.clear()
                voters.add_version(snapshot.end_offset - 1, 1)
                voters.add_voters(snapshot.end_offset - 1, named)
        for batch in self._read_back():
            if batch.is_control:
                take_control_records(quorum, batch)
        self.disk.flushed = len(self.disk.batches)
        self.replica = RaftReplica(quorum)
        self.replica.begin(self.disk.state, self.harness.now_ms)
        self.pump()

    def crash(self, *, power_loss: bool) -> None:
        """Stop immediately."""
        self.replica = None
        self.waiting, self.parked = [], []
        if power_loss:
            del self.disk.batches[self.disk.flushed :]

    def pump(self) -> None:
        """Execute the replica's effects in order, until one must wait for a flush."""
        if self.replica is None:
            return
        self.wake_ms = self.replica.poll(self.harness.now_ms)
        self.waiting += self.replica.take_effects()
        while self.waiting and not self.is_persisting and self.replica is not None:
            self._carry_out(self.waiting.pop(0))
            self.waiting += self.replica.take_effects() if self.replica is not None else []
        self.harness.check()
        self.harness.at(self.wake_ms, self.poll_if(self.incarnation, self.wake_ms))

    def poll_if(self, incarnation: int, wake_ms: int) -> Callable[[], None]:
        return lambda: (
            self.pump()
            if self.replica is not None
            and self.incarnation == incarnation
            and self.wake_ms == wake_ms
            else None
        )

    def receive(self, request: Message, answer: Callable[[Message], None]) -> None:
        """Serve a request as a node does."""
        assert self.replica is not None, "only a running node receives"
        quorum = self.replica.quorum
        match request:
            case FetchRequest():
                self._fetch(request, answer, park=True)
            case FetchSnapshotRequest():
                outcome = rules_serving.snapshot_outcome(quorum, request, self.harness.now_ms)
                if isinstance(outcome, rules_serving.SnapshotPiece):
                    content = self.disk.snapshots[outcome.snapshot]
                    piece = content[outcome.position : outcome.position + 40]
                    outcome = rules_serving.snapshot_response(
                        quorum, outcome, size=len(content), records=piece
                    )
                answer(outcome)
            case ApiVersionsRequest():
                answer(
                    ApiVersionsResponse(
                        supported_features=[
                            SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
                        ]
                    )
                )
            case _:
                self.replica.on_request(request, answer, self.harness.now_ms)
        self.pump()

    def write(self) -> None:
        """Append a batch as the controller does."""
        assert self.replica is not None and self.leads, "only an active leader writes"
        count = self.harness.random.randrange(1, 4)
        first = self.replica.append(count)
        records = [
            Record(timestamp=0, value=b"%d.%d" % (self.replica.quorum.epoch, first + index))
            for index in range(count)
        ]
        self.disk.batches.append(
            build_batch(records, base_offset=first, leader_epoch=self.replica.quorum.epoch)
        )
        self.replica.on_written()
        self.pump()

    def take_snapshot(self) -> SnapshotId:
        """Write a snapshot of the committed records, and delete the log before it."""
        assert self.replica is not None, "only a running node takes snapshots"
        log, voters = self.replica.quorum.log, self.replica.quorum.voters
        assert log.high_watermark is not None, "a snapshot contains only committed records"
        epoch = log.epochs.epoch_at(log.high_watermark - 1)
        assert epoch is not None, "the log knows its epochs"
        snapshot = SnapshotId(log.high_watermark, epoch)
        self.harness.voters_in_snapshots[snapshot] = (
            voters.voters_at(snapshot.end_offset - 1) if self.harness.is_dynamic else None
        )
        self.disk.snapshots[snapshot] = b"everything below %d" % snapshot.end_offset
        log.add_snapshot(snapshot)
        for gone in log.delete_before(snapshot):
            self.disk.snapshots.pop(gone, None)
        voters.trim_before(log.start_offset)
        kept = [
            batch
            for batch in self.disk.batches
            if next(split_batches(batch)).next_offset > snapshot.end_offset
        ]
        self.disk.flushed = max(0, self.disk.flushed - (len(self.disk.batches) - len(kept)))
        self.disk.batches, self.disk.start_offset = kept, snapshot.end_offset
        return snapshot

    def _read_back(self) -> list[RecordBatch]:
        return [next(split_batches(batch)) for batch in self.disk.batches]

    def _fetch(
        self, request: FetchRequest, answer: Callable[[Message], None], *, park: bool
    ) -> None:
        assert self.replica is not None, "only a running node serves"
        quorum = self.replica.quorum
        refused = rules_serving.refuse_fetch(quorum, request) or rules_serving.fetch_outcome(
            quorum, request, self.harness.now_ms, self.harness.now_ms
        )
        if refused is not None:
            answer(refused)
            return
        offset = request.topics[0].partitions[0].fetch_offset
        records = b"".join(
            batch for batch in self.disk.batches if next(split_batches(batch)).next_offset > offset
        )
        if not records and park:
            self.parked.append((request, answer, self.harness.now_ms + request.max_wait_ms))
            self.harness.at(self.harness.now_ms + request.max_wait_ms, self._expire_parked)
            return
        response = rules_serving.fetch_response(quorum, ErrorCode.NONE)
        response.responses[0].partitions[0].records = records
        answer(response)

    def _expire_parked(self) -> None:
        if self.replica is None:
            return
        due = [entry for entry in self.parked if entry[2] <= self.harness.now_ms]
        self.parked = [entry for entry in self.parked if entry[2] > self.harness.now_ms]
        for request, answer, _ in due:
            self._fetch(request, answer, park=False)
        self.pump()

    def _carry_out(self, effect: do.Effect) -> None:
        assert self.replica is not None, "only a running node acts"
        quorum = self.replica.quorum
        match effect:
            case do.Persist(state=state):
                self.is_persisting = True
                self.harness.after(
                    self.harness.random.randrange(3), self._persisted(self.incarnation, state)
                )
            case do.EmitEvent():
                pass
            case do.Reply(ticket=ticket, body=body):
                ticket(body)  # type: ignore[operator]  # the harness's tickets are callbacks
            case do.Send():
                self.harness.send(self, effect)
            case do.WriteLeaderChange():
                message = LeaderChangeMessage(
                    version=0,
                    leader_id=self.id,
                    voters=[Voter(voter_id=key.id) for key in effect.voters],
                )
                records: list[tuple[ControlType, Message]] = [(ControlType.LEADER_CHANGE, message)]
                if effect.kraft_version is not None:
                    records.append(
                        (
                            ControlType.KRAFT_VERSION,
                            KRaftVersionRecord(k_raft_version=effect.kraft_version),
                        )
                    )
                if effect.voters_record is not None:
                    records.append((ControlType.KRAFT_VOTERS, effect.voters_record))
                self.disk.batches.append(
                    build_control_batch(
                        records,
                        base_offset=effect.first_offset,
                        timestamp=0,
                        leader_epoch=effect.leader_epoch,
                    )
                )
            case do.WriteVoters():
                records = [(ControlType.KRAFT_VOTERS, effect.voters_record)]
                self.disk.batches.append(
                    build_control_batch(
                        records,
                        base_offset=effect.first_offset,
                        timestamp=0,
                        leader_epoch=effect.leader_epoch,
                    )
                )
            case do.WriteFetched(records=content):
                self.disk.batches += [
                    bytes(memoryview(content)[batch.position : batch.position + batch.size_bytes])
                    for batch in split_batches(content)
                ]
            case do.Flush(end_offset=end_offset):
                self.harness.after(
                    self.harness.random.randrange(self.harness.flush_ms),
                    self._flushed(self.incarnation, end_offset, len(self.disk.batches)),
                )
            case do.Truncate(end_offset=end_offset):
                self.disk.batches = [
                    batch
                    for batch in self.disk.batches
                    if next(split_batches(batch)).base_offset < end_offset
                ]
                self.disk.flushed = min(self.disk.flushed, len(self.disk.batches))
                assert self.disk.end_offset() == end_offset, (
                    "the log is truncated at a batch boundary"
                )
            case do.WriteSnapshotPiece(snapshot=snapshot, position=position, piece=piece):
                self.harness.parts[self.id] = self.harness.parts.get(self.id, b"")[
                    :position
                ] + bytes(piece)
            case do.FinishSnapshot(snapshot=snapshot):
                content = self.harness.parts.pop(self.id)
                assert content == b"everything below %d" % snapshot.end_offset, (
                    "an incomplete snapshot replaces the log"
                )
                self.disk.snapshots = {snapshot: content}
                self.disk.batches, self.disk.flushed, self.disk.start_offset = (
                    [],
                    0,
                    snapshot.end_offset,
                )
                voters = self.harness.voters_in_snapshots.get(snapshot)
                self.replica.on_snapshot_installed(snapshot, voters, 1 if voters is not None else 0)
            case do.Lead():
                assert (quorum.log.high_watermark or 0) > self._epoch_start(effect.leader_epoch), (
                    "it leads before its epoch has begun"
                )
                self.leads = True
            case do.StopLeading():
                self.leads = False
            case do.WakeFetches():
                parked, self.parked = self.parked, []
                for request, answer, until_ms in parked:
                    if until_ms > self.harness.now_ms:
                        self._fetch(request, answer, park=True)
            case do.Advance(high_watermark=high_watermark):
                self.harness.committed(self, high_watermark)
            case do.LeaderKnown():
                assert (
                    effect.leader is None or quorum.address_in(effect.leader.endpoints) is not None
                )

    def _epoch_start(self, leader_epoch: int) -> int:
        """The offset of the first record of an epoch in the own log."""
        assert self.replica is not None, "only a running node leads"
        return next(
            each.start_offset
            for each in self.replica.quorum.log.epochs.starts
            if each.leader_epoch == leader_epoch
        )

    def _persisted(self, incarnation: int, state: QuorumState) -> Callable[[], None]:
        def done() -> None:
            if self.replica is not None and self.incarnation == incarnation:
                self.harness.check_durable(self, state)
                self.disk.state = state
                self.is_persisting = False
                self.pump()

        return done

    def _flushed(self, incarnation: int, end_offset: int, batch_count: int) -> Callable[[], None]:
        def done() -> None:
            if self.replica is not None and self.incarnation == incarnation:
                self.disk.flushed = max(self.disk.flushed, min(batch_count, len(self.disk.batches)))
                self.replica.on_flushed(end_offset)
                self.pump()

        return done


class Harness:
    """The nodes, the clock, the network, and the invariants."""

    def __init__(
        self,
        seed: int,
        *,
        size: int = 3,
        settings: RaftSettings | None = None,
        formatted: tuple[int, ...] = (),
    ) -> None:
        self.random = Random(seed)
        self.settings = settings or RaftSettings()
        self.formatted = formatted
        self.is_dynamic = bool(formatted)
        self.static_voters = VoterSet(
            VoterNode(key=ReplicaKey(node_id), endpoints={LISTENER: address_of(node_id)})
            for node_id in range(1, size + 1)
        )
        self.now_ms = 0
        self.loss = 0.0
        self.flush_ms = 5
        """A flush takes less than this; a slow disk has much to lose."""
        self.partitioned: dict[tuple[int, int], None] = {}
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[int, int], int] = {}
        self.log: dict[int, bytes] = {}
        """Offset -> the committed batch that contains it."""
        self.parts: dict[int, bytes] = {}
        self.voters_in_snapshots: dict[SnapshotId, VoterSet | None] = {}
        self.events: list[tuple[int, Event]] = []
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self.nodes = {node_id: HarnessNode(self, node_id) for node_id in range(1, size + 1)}

    def emit(self, node: HarnessNode, event: Event) -> None:
        self.events.append((node.id, event))

    def at(self, moment_ms: int, action: Callable[[], None]) -> None:
        self._count += 1
        if moment_ms < 1 << 61:
            heapq.heappush(self._queue, (max(moment_ms, self.now_ms), self._count, action))

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.at(self.now_ms + delay_ms, action)

    def run(self, duration_ms: int) -> None:
        until_ms = self.now_ms + duration_ms
        while self._queue and self._queue[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
        self.now_ms = until_ms

    def run_until(self, holds: Callable[[], bool], limit_ms: int = 30_000) -> None:
        until_ms = self.now_ms + limit_ms
        while not holds():
            assert self._queue and self._queue[0][0] <= until_ms, (
                "the condition was not reached in time"
            )
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()

    def send(self, node: HarnessNode, send: do.Send) -> None:
        """Deliver a request, or lose it or its response; notify the sender of a timeout."""
        target = self.nodes[send.address.port - 9000]
        incarnation = node.incarnation
        is_done = [False]

        def fail() -> None:
            if not is_done[0] and node.replica is not None and node.incarnation == incarnation:
                is_done[0] = True
                node.replica.on_failure(send.number, self.now_ms)
                node.pump()

        def answer(body: Message) -> None:
            if (target.id, node.id) in self.partitioned or self.random.random() < self.loss:
                return
            self.after(self.random.randrange(1, 20), lambda: deliver(body))

        def deliver(body: Message) -> None:
            if not is_done[0] and node.replica is not None and node.incarnation == incarnation:
                is_done[0] = True
                node.replica.on_response(send.number, body, self.now_ms)
                node.pump()

        def arrive() -> None:
            if target.replica is None:
                self.after(1, fail)
            else:
                target.receive(send.body, answer)

        self.after(self.settings.request_timeout_ms, fail)
        if (node.id, target.id) not in self.partitioned and self.random.random() >= self.loss:
            self.after(self.random.randrange(1, 20), arrive)

    def leader(self) -> HarnessNode | None:
        """Return the active leader of the highest epoch."""
        leading = [
            node
            for node in self.nodes.values()
            if node.replica is not None and node.leads and node.replica.is_leader
        ]
        # union-attr: `leading` has running nodes only
        return max(leading, key=lambda node: node.replica.quorum.epoch, default=None)  # type: ignore[union-attr]

    # Invariants
    # ----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """One leader per epoch."""
        for node in self.nodes.values():
            if node.replica is not None and isinstance(node.replica.quorum.role, Leader):
                epoch = node.replica.quorum.epoch
                assert self.leaders.setdefault(epoch, node.id) == node.id, (
                    f"epoch {epoch} is led by {self.leaders[epoch]} and {node.id}"
                )

    def check_durable(self, node: HarnessNode, state: QuorumState) -> None:
        """One vote per epoch, across restarts; and the epoch never decreases."""
        if node.disk.state is not None:
            assert state.leader_epoch >= node.disk.state.leader_epoch, (
                f"the epoch of {node.id} went back"
            )
        if state.voted_id >= 0:
            given = self.votes.setdefault((node.id, state.leader_epoch), state.voted_id)
            assert given == state.voted_id, (
                f"{node.id} voted for {given} and {state.voted_id} in epoch {state.leader_epoch}"
            )

    def committed(self, node: HarnessNode, high_watermark: int) -> None:
        """Committed records are the same everywhere, and permanent."""
        for content in node.disk.batches:
            batch = next(split_batches(content))
            if batch.next_offset > high_watermark:
                break
            known = self.log.setdefault(batch.base_offset, content)
            assert known == content, f"{node.id} has another batch committed at {batch.base_offset}"


def address_of(node_id: int) -> Address:
    return Address("lab", 9000 + node_id)


def harness_voter(harness: Harness, node_id: int) -> VoterNode:
    return VoterNode(
        key=harness.nodes[node_id].key
        if node_id in getattr(harness, "nodes", {})
        else ReplicaKey(node_id, bytes([node_id]) * 16),
        endpoints={LISTENER: address_of(node_id)},
    )

"""A manually driven quorum: neither time nor delivery happens by itself; the script says which
message arrives, which is lost, and when.

Disks are fast unless made slow. Each replica's decisions and messages are printed as lines.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kraftsim.events.event import Event
from kraftsim.raft import rules_effects as do
from kraftsim.raft import rules_messages
from kraftsim.raft.events import (
    HighWatermarkMoved,
    MetadataTruncated,
    RaftRoleChanged,
    SnapshotLoaded,
    VoteAnswered,
    VotersChanged,
)
from kraftsim.raft.rules_quorum import Quorum
from kraftsim.raft.rules_settings import RaftSettings
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchRequest, FetchResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k52_vote import VoteRequest, VoteResponse
from protocol.messages.k53_begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from protocol.messages.k54_end_quorum_epoch import EndQuorumEpochRequest
from protocol.messages.k59_fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.records.batches import split_batches
from protocol.schema import Message
from tests.core.quorum_harness import Harness, HarnessNode


@dataclass(eq=False)
class PendingMessage:
    """A request, or its response, in flight."""

    sender: int
    receiver: int
    body: Message
    number: int
    requester: HarnessNode
    incarnation: int
    request: Message | None = None
    """The request that a response belongs to."""

    @property
    def name(self) -> str:
        """The request's name, and whether it is the response."""
        asked = self.request if self.request is not None else self.body
        return type(asked).__name__.removesuffix("Request")


class RandomSource:
    """Draws the longest timeouts and the smallest ids."""

    def randrange(self, first: int, end: int | None = None) -> int:
        """Return the last of the first numbers, or the first of a range."""
        return first - 1 if end is None else first

    def random(self) -> float:
        """Lose nothing."""
        return 1.0


class TableNode(HarnessNode):
    """A node whose flushes wait while its disk is slow."""

    def _flushed(self, incarnation: int, end_offset: int, batch_count: int) -> Callable[[], None]:
        done = super()._flushed(incarnation, end_offset, batch_count)
        slow = self.harness.slow  # type: ignore[attr-defined]  # the harness is a Table
        return lambda: slow[self.id].append(done) if self.id in slow else done()


class Table(Harness):
    """`size` nodes; messages are in `pending` in sending order, and decisions and writes in
    `lines`.
    """

    def __init__(
        self, *, size: int, settings: RaftSettings | None = None, formatted: tuple[int, ...] = ()
    ) -> None:
        super().__init__(0, size=size, settings=settings, formatted=formatted)
        self.random = RandomSource()  # type: ignore[assignment]  # draws the same numbers always
        self.pending: list[PendingMessage] = []
        self.lines: list[str] = []
        self.parted: set[frozenset[int]] = set()
        self._lost: list[PendingMessage] = []
        self.slow: dict[int, list[Callable[[], None]]] = {}
        """Nodes with slow disks -> their pending flushes."""
        self.nodes = {node_id: TableNode(self, node_id) for node_id in self.nodes}

    # Time and messages
    # ----------------------------------------------------------------------------------------------

    def at(self, moment_ms: int, action: Callable[[], None]) -> None:
        """Nothing happens by time."""

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Disk operations complete immediately."""
        action()

    def send(self, node: HarnessNode, send: do.Send) -> None:
        """Add a request to the pending messages."""
        self._put(
            PendingMessage(
                node.id, send.address.port - 9000, send.body, send.number, node, node.incarnation
            )
        )

    def emit(self, node: HarnessNode, event: Event) -> None:
        """Print an event of a replica."""
        event_line = reported_by(event)
        if event_line is not None:
            self.lines.append(f"{node.id}: {event_line}")

    # Commands
    # ----------------------------------------------------------------------------------------------

    def deliver(self, message: PendingMessage) -> None:
        """Deliver a message. A request to a node that is down fails."""
        self.pending.remove(message)
        target = self.nodes[message.receiver]
        if message.request is not None:
            if target.replica is not None and target.incarnation == message.incarnation:
                target.replica.on_response(message.number, message.body, self.now_ms)
                target.pump()
        elif target.replica is None:
            self._fail(message)
        else:
            target.receive(message.body, self._answer_to(message))

    def lose(self, message: PendingMessage) -> None:
        """Drop a message, and notify its sender that there will be no response."""
        self.pending.remove(message)
        self._fail(message)

    def part(self, one: int, other: int) -> None:
        """From now on messages between two nodes are lost without notification."""
        self.parted.add(frozenset((one, other)))
        for message in list(self.pending):
            if {message.sender, message.receiver} == {one, other}:
                self.pending.remove(message)
                self._lost.append(message)

    def heal(self) -> None:
        """Deliver messages again; requests that were lost time out."""
        self.parted.clear()
        lost, self._lost = self._lost, []
        for message in lost:
            self._fail(message)

    def time_out(self, node: HarnessNode) -> None:
        """Advance the clock to a node's next deadline, and let it act."""
        self.now_ms = max(self.now_ms, node.wake_ms)
        node.pump()

    def hold_flushes(self, node_id: int) -> None:
        """Keep all writes of a node from becoming durable."""
        self.slow.setdefault(node_id, [])

    def release_flushes(self, node_id: int) -> None:
        """Make the pending writes durable, and all later ones immediately."""
        for done in self.slow.pop(node_id):
            done()

    def _answer_to(self, message: PendingMessage) -> Callable[[Message], None]:
        def answer(body: Message) -> None:
            self._put(
                PendingMessage(
                    message.receiver,
                    message.sender,
                    body,
                    message.number,
                    message.requester,
                    message.incarnation,
                    request=message.body,
                )
            )

        return answer

    def _put(self, message: PendingMessage) -> None:
        if frozenset((message.sender, message.receiver)) in self.parted:
            self._lost.append(message)
            self.lines.append(f"{message_line(message)}: lost in the partition")
        else:
            self.pending.append(message)
            self.lines.append(message_line(message))

    def _fail(self, message: PendingMessage) -> None:
        requester = message.requester
        if requester.replica is not None and requester.incarnation == message.incarnation:
            requester.replica.on_failure(message.number, self.now_ms)
            requester.pump()


def reported_by(event: Event) -> str | None:
    """Return the script line of an event; None for those that are not printed."""
    match event:
        case RaftRoleChanged():
            voted = f", voted for {event.voted_id}" if event.voted_id >= 0 else ""
            leader = (
                f" of {event.leader_id}"
                if event.role == "Follower"
                else f", leader {event.leader_id}"
                if event.leader_id >= 0
                else ""
            )
            return f"{event.role}{leader} in epoch {event.leader_epoch}{voted}"
        case VoteAnswered():
            return (
                f"{'grants' if event.is_granted else 'refuses'} "
                f"{'pre-vote' if event.is_pre_vote else 'vote'} to {event.candidate_id}"
            )
        case HighWatermarkMoved():
            return f"committed below {event.high_watermark}"
        case MetadataTruncated():
            return f"truncates its log at {event.end_offset}"
        case SnapshotLoaded():
            return f"loads the snapshot below {event.end_offset} of epoch {event.epoch}"
        case VotersChanged():
            return f"voters {event.voters} from offset {event.offset}"
    return None


def message_line(message: PendingMessage) -> str:
    """Return the script line of a message."""
    way = f"{message.sender}>{message.receiver} {message.name}"
    return (
        f"{way} {request_fields(message.body)}"
        if message.request is None
        else f"{way} answer {response_fields(message)}"
    )


def request_fields(body: Message) -> str:
    """Return the contents of a request."""
    match body:
        case VoteRequest():
            asked = rules_messages.parse_vote(body)
            return (
                f"epoch {asked.epoch} log "
                f"{asked.log_end.offset}@{asked.log_end.epoch}"
                f"{' pre-vote' if asked.is_pre_vote else ''}"
            )
        case BeginQuorumEpochRequest():
            return f"epoch {rules_messages.parse_begin_epoch(body).epoch}"
        case EndQuorumEpochRequest():
            fields = rules_messages.parse_end_epoch(body)
            return f"epoch {fields.epoch} successors {[key.id for key in fields.successors]}"
        case FetchRequest():
            wanted = body.topics[0].partitions[0]
            return (
                f"epoch {wanted.current_leader_epoch} offset "
                f"{wanted.fetch_offset}@{wanted.last_fetched_epoch}"
            )
        case FetchSnapshotRequest():
            piece = body.topics[0].partitions[0]
            return (
                f"{piece.snapshot_id.end_offset}@{piece.snapshot_id.epoch} from byte "
                f"{piece.position}"
            )
        case ApiVersionsRequest():
            return ""
    return type(body).__name__


def response_fields(message: PendingMessage) -> str:
    """Return the contents of a response."""
    quorum = message.requester.replica.quorum if message.requester.replica is not None else None
    body = message.body
    if quorum is None:
        return "to a node that is down"
    match body:
        case VoteResponse():
            vote = rules_messages.vote_answer(quorum, body)
            return (
                f"{_error(vote.error)}epoch {vote.leader_epoch}{_leader(vote.leader_id)} "
                f"{'granted' if vote.is_granted else 'refused'}"
            )
        case BeginQuorumEpochResponse():
            answer = rules_messages.begin_epoch_answer(quorum, body)
            return f"{_error(answer.error)}epoch {answer.leader_epoch}{_leader(answer.leader_id)}"
        case FetchResponse():
            return _fetched(body, quorum)
        case FetchSnapshotResponse():
            piece = rules_messages.fetch_snapshot_answer(quorum, body)
            return (
                "nothing"
                if piece is None
                else (
                    f"{_error(piece.error)}bytes "
                    f"{piece.position}..{piece.position + len(piece.records)} of {piece.size}"
                )
            )
    error = getattr(body, "error_code", 0)
    return ErrorCode(error).name


def _fetched(body: FetchResponse, quorum: Quorum) -> str:
    answer = rules_messages.fetch_answer(quorum, body)
    if answer is None:
        return ErrorCode(body.error_code).name
    words = [f"{_error(answer.error)}epoch {answer.leader_epoch}{_leader(answer.leader_id)}"]
    if answer.diverging is not None:
        words.append(f"diverging at {answer.diverging.end_offset}@{answer.diverging.epoch}")
    if answer.snapshot is not None:
        words.append(f"snapshot {answer.snapshot.end_offset}@{answer.snapshot.epoch}")
    batches = list(split_batches(answer.records)) if answer.records else []
    if batches:
        words.append(f"records {batches[0].base_offset}..{batches[-1].last_offset}")
    return " ".join([*words, f"committed {answer.high_watermark}"])


def _error(error: ErrorCode) -> str:
    return "" if error is ErrorCode.NONE else f"{error.name} "


def _leader(leader_id: int | None) -> str:
    return "" if leader_id is None or leader_id < 0 else f" leader {leader_id}"

"""A quorum on a table: nothing happens by itself, neither time nor delivery; whoever sits there says which letter arrives, which is lost, and when.

Disks are quick unless they are told to be slow. What each replica decides, and the letters it writes, are told as lines.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kraftsim.core.raft import effects as do
from kraftsim.core.raft import fetch_messages, messages
from kraftsim.core.raft.settings import RaftSettings
from kraftsim.events.event import Event
from kraftsim.events.raft import HighWatermarkMoved, MetadataTruncated, RaftRoleChanged, SnapshotLoaded, VoteAnswered, VotersChanged
from protocol.batches import split_batches
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchRequest, FetchResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k52_vote import VoteRequest, VoteResponse
from protocol.messages.k53_begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from protocol.messages.k54_end_quorum_epoch import EndQuorumEpochRequest
from protocol.messages.k59_fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.schema import Message
from tests.core.quorum_lab import Lab, LabNode


@dataclass(eq=False)
class Letter:
    """A request, or the answer to one, under way."""

    sender: int
    receiver: int
    body: Message
    number: int
    asker: LabNode
    incarnation: int
    request: Message | None = None
    """What an answer answers."""

    @property
    def name(self) -> str:
        """What it is called: the request's name, and whether it is the answer."""
        asked = self.request if self.request is not None else self.body
        return type(asked).__name__.removesuffix("Request")


class Chance:
    """Waits for as long as may be drawn, and writes as little."""

    def randrange(self, first: int, end: int | None = None) -> int:
        """Return the last of the first numbers, or the first of a range."""
        return first - 1 if end is None else first

    def random(self) -> float:
        """Lose nothing."""
        return 1.0


class TableNode(LabNode):
    """A node whose flushes wait while its disk is slow."""

    def _flushed(self, incarnation: int, end_offset: int, batch_count: int) -> Callable[[], None]:
        done = super()._flushed(incarnation, end_offset, batch_count)
        slow = self.lab.slow  # type: ignore[attr-defined]
        return lambda: slow[self.id].append(done) if self.id in slow else done()


class Table(Lab):
    """`size` nodes; letters lie in `letters` in the order in which they were written, and what was decided and written stands in `lines`."""

    def __init__(self, *, size: int, settings: RaftSettings | None = None, formatted: tuple[int, ...] = ()) -> None:
        super().__init__(0, size=size, settings=settings, formatted=formatted)
        self.random = Chance()  # type: ignore[assignment]
        self.letters: list[Letter] = []
        self.lines: list[str] = []
        self.parted: set[frozenset[int]] = set()
        self._lost: list[Letter] = []
        self.slow: dict[int, list[Callable[[], None]]] = {}
        """Nodes with slow disks -> what waits for a flush."""
        self.nodes = {node_id: TableNode(self, node_id) for node_id in self.nodes}

    # What the lab does with time and letters ----------------------------------------------------------------------------------------------------

    def at(self, moment_ms: int, action: Callable[[], None]) -> None:
        """Nothing happens because it is time."""

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        """What a disk does is done at once."""
        action()

    def send(self, node: LabNode, send: do.Send) -> None:
        """Put a request on the table."""
        self._put(Letter(node.id, send.address.port - 9000, send.body, send.number, node, node.incarnation))

    def note(self, node: LabNode, event: Event) -> None:
        """Say what a replica has decided."""
        told = told_of(event)
        if told is not None:
            self.lines.append(f"{node.id}: {told}")

    # What is done at the table ------------------------------------------------------------------------------------------------------------------

    def deliver(self, letter: Letter) -> None:
        """Let a letter arrive. A request to a node that is down comes back as a failure."""
        self.letters.remove(letter)
        target = self.nodes[letter.receiver]
        if letter.request is not None:
            if target.replica is not None and target.incarnation == letter.incarnation:
                target.replica.on_response(letter.number, letter.body, self.now_ms)
                target.pump()
        elif target.replica is None:
            self._fail(letter)
        else:
            target.receive(letter.body, self._answer_to(letter))

    def lose(self, letter: Letter) -> None:
        """Let a letter get lost, and its asker know that there will be no answer."""
        self.letters.remove(letter)
        self._fail(letter)

    def part(self, one: int, other: int) -> None:
        """From now on letters between two nodes go nowhere, and nobody is told."""
        self.parted.add(frozenset((one, other)))
        for letter in list(self.letters):
            if {letter.sender, letter.receiver} == {one, other}:
                self.letters.remove(letter)
                self._lost.append(letter)

    def mend(self) -> None:
        """Let letters through again; whoever waited for a lost one has waited long enough."""
        self.parted.clear()
        lost, self._lost = self._lost, []
        for letter in lost:
            self._fail(letter)

    def time_out(self, node: LabNode) -> None:
        """Let the clock come to the moment at which a node wants to act, and let it."""
        self.now_ms = max(self.now_ms, node.wake_ms)
        node.pump()

    def hold_flushes(self, node_id: int) -> None:
        """Let nothing that a node writes become durable."""
        self.slow.setdefault(node_id, [])

    def release_flushes(self, node_id: int) -> None:
        """Let what waited become durable, and everything from here on at once."""
        for done in self.slow.pop(node_id):
            done()

    def _answer_to(self, letter: Letter) -> Callable[[Message], None]:
        def answer(body: Message) -> None:
            self._put(Letter(letter.receiver, letter.sender, body, letter.number, letter.asker, letter.incarnation, request=letter.body))

        return answer

    def _put(self, letter: Letter) -> None:
        if frozenset((letter.sender, letter.receiver)) in self.parted:
            self._lost.append(letter)
            self.lines.append(f"{told_letter(letter)}: goes nowhere")
        else:
            self.letters.append(letter)
            self.lines.append(told_letter(letter))

    def _fail(self, letter: Letter) -> None:
        asker = letter.asker
        if asker.replica is not None and asker.incarnation == letter.incarnation:
            asker.replica.on_failure(letter.number, self.now_ms)
            asker.pump()


def told_of(event: Event) -> str | None:
    """Return what a fact is in a script; None for those that are not told."""
    match event:
        case RaftRoleChanged():
            voted = f", voted for {event.voted_id}" if event.voted_id >= 0 else ""
            leader = f" of {event.leader_id}" if event.role == "Follower" else f", leader {event.leader_id}" if event.leader_id >= 0 else ""
            return f"{event.role}{leader} in epoch {event.leader_epoch}{voted}"
        case VoteAnswered():
            return f"{'grants' if event.is_granted else 'refuses'} {'pre-vote' if event.is_pre_vote else 'vote'} to {event.candidate_id}"
        case HighWatermarkMoved():
            return f"committed below {event.high_watermark}"
        case MetadataTruncated():
            return f"cuts its log at {event.end_offset}"
        case SnapshotLoaded():
            return f"begins with the snapshot below {event.end_offset} of epoch {event.epoch}"
        case VotersChanged():
            return f"voters {event.voters} from offset {event.offset}"
    return None


def told_letter(letter: Letter) -> str:
    """Return a letter as a script shows it."""
    way = f"{letter.sender}>{letter.receiver} {letter.name}"
    return f"{way} {told_request(letter.body)}" if letter.request is None else f"{way} answer {told_answer(letter)}"


def told_request(body: Message) -> str:
    """Return what a request asks."""
    match body:
        case VoteRequest():
            asked = messages.vote_asked(body)
            return f"epoch {asked.epoch} log {asked.log_end.offset}@{asked.log_end.epoch}{' pre-vote' if asked.is_pre_vote else ''}"
        case BeginQuorumEpochRequest():
            return f"epoch {messages.begin_epoch_told(body).epoch}"
        case EndQuorumEpochRequest():
            told = messages.end_epoch_told(body)
            return f"epoch {told.epoch} successors {[key.id for key in told.successors]}"
        case FetchRequest():
            wanted = body.topics[0].partitions[0]
            return f"epoch {wanted.current_leader_epoch} offset {wanted.fetch_offset}@{wanted.last_fetched_epoch}"
        case FetchSnapshotRequest():
            piece = body.topics[0].partitions[0]
            return f"{piece.snapshot_id.end_offset}@{piece.snapshot_id.epoch} from byte {piece.position}"
        case ApiVersionsRequest():
            return ""
    return type(body).__name__


def told_answer(letter: Letter) -> str:
    """Return what an answer says."""
    quorum = letter.asker.replica.quorum if letter.asker.replica is not None else None
    body = letter.body
    if quorum is None:
        return "to nobody"
    match body:
        case VoteResponse():
            vote = messages.vote_answer(quorum, body)
            return f"{_error(vote.error)}epoch {vote.leader_epoch}{_leader(vote.leader_id)} {'granted' if vote.is_granted else 'refused'}"
        case BeginQuorumEpochResponse():
            answer = messages.begin_epoch_answer(quorum, body)
            return f"{_error(answer.error)}epoch {answer.leader_epoch}{_leader(answer.leader_id)}"
        case FetchResponse():
            return _fetched(body, quorum)
        case FetchSnapshotResponse():
            piece = fetch_messages.fetch_snapshot_answer(quorum, body)
            return (
                "nothing" if piece is None else f"{_error(piece.error)}bytes {piece.position}..{piece.position + len(piece.records)} of {piece.size}"
            )
    error = getattr(body, "error_code", 0)
    return ErrorCode(error).name


def _fetched(body: FetchResponse, quorum: object) -> str:
    answer = fetch_messages.fetch_answer(quorum, body)  # type: ignore[arg-type]
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

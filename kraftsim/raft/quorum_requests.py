"""Requests served by the quorum (Raft) rules: the response is sent once the resulting state is
durable; a Fetch can wait for data.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from kraftsim.raft import rules_serving
from kraftsim.raft.raft_node import RaftNode
from kraftsim.raft.rules_messages import asking_replica, fitted_response
from kraftsim.raft.rules_roles import Leader
from kraftsim.server.call import Answer, Call, Deferred, Encoded
from kraftsim.server.purgatory import HandOver, Purgatory
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchRequest, ReplicaState
from protocol.requests import response_chunks


class QuorumMember(Protocol):
    """A node with a replica of the metadata log that votes."""

    @property
    def raft(self) -> RaftNode:
        """The replica."""
        ...


def ask_quorum(controller: QuorumMember, call: Call) -> Answer | Deferred:
    """Pass a request to the quorum."""
    later = Deferred()
    controller.raft.ask(
        call.body, lambda body: later.complete_with(lambda: fitted_response(body, call.api_version))
    )
    return later if later.answer is None else later.answer


# --------------------------------------------------------------------------------------------------
# Fetch requests of voters and observers on the leader: answered immediately, or as soon as there
# is data
#
# A voter waits for records and is woken by an append, because records must be replicated to it
# before they can be committed. An observer may apply only committed records: it waits for a new
# high watermark and is woken by the commit, so that one response carries both. (Kafka wakes both
# by the append, and sends the high watermark with the next response; KIP-1166 changes that:
# docs/deviations.md.)
# Source: org.apache.kafka.raft.KafkaRaftClient.handleFetchRequest, KIP-595.

FIRST_VERSION_WITH_REPLICA_STATE = 15
SIZE_AND_CORRELATION_ID_BYTES = 8
REPLICAS_MAX = 1000
"""Limits unauthenticated replica ids: the one that has been idle longest is evicted first."""


class Reader(StrEnum):
    """The kind of a waiting replica, which determines what it waits for."""

    VOTER = "voter"
    OBSERVER = "observer"


class WaitingFetches:
    """The Fetch requests to one replica.

    Call `on_readable` after each write, each commit, and on loss of leadership.
    """

    def __init__(self, raft: RaftNode, world: HandOver) -> None:
        self._raft = raft
        self._waiting: Purgatory[Reader] = Purgatory(world)
        self._reported: dict[int, int] = {}
        """Replica id -> the high watermark last sent to it."""
        self._last_state: tuple[int | None, ...] = ()
        self._last_answer = Encoded(b"")

    def fetch(self, request: FetchRequest, version: int) -> Answer | Deferred:
        """Answer immediately with an error, a divergence, or records; otherwise wait for
        max_wait_ms.
        """
        if version < FIRST_VERSION_WITH_REPLICA_STATE:
            request.replica_state = ReplicaState(replica_id=request.replica_id)
        later = Deferred()
        self._raft.when_durable(lambda: self._read(lambda: self._begin(request, version, later)))
        return later if later.answer is None else later.answer

    def on_readable(self, *, is_committed: bool) -> None:
        """Complete the waiting fetches that can be completed."""
        is_over = not self._raft.replica.is_leader
        if is_over or not is_committed:
            self._waiting.check(Reader.VOTER)
        if is_over or is_committed:
            self._waiting.check(Reader.OBSERVER)

    def close(self) -> None:
        """Drop all waiting fetches; the node is stopping."""
        self._waiting.close()

    def refused(self, request: FetchRequest, version: int) -> Answer | None:
        """Return the error response to a request that cannot be answered with records."""
        response = rules_serving.refuse_fetch(self._raft.quorum, request)
        return None if response is None else fitted_response(response, version)

    def leads(self, leader_epoch: int) -> bool:
        """Return whether this node is still the leader of an epoch. Of the reasons to refuse a
        waiting request, only this one can change.
        """
        quorum = self._raft.quorum
        return quorum.epoch == leader_epoch and isinstance(quorum.role, Leader)

    def has_news(self, reader: Reader, replica_id: int, fetch_offset: int) -> bool:
        """Return whether there are new records, or a high watermark that an observer has not
        received.
        """
        if self._raft.quorum.log.end_offset > fetch_offset:
            return True
        high_watermark = self._raft.high_watermark
        return (
            reader is Reader.OBSERVER
            and replica_id >= 0
            and high_watermark is not None
            and self._reported.get(replica_id) != high_watermark
        )

    def give(self, version: int, fetch_offset: int, replica_id: int) -> Encoded:
        """Return the records from an offset on.

        The response is built once for all replicas that wait for the same.
        """
        quorum = self._raft.quorum
        log = quorum.log
        self._record_sent(replica_id, log.high_watermark)
        state = (
            version,
            fetch_offset,
            log.end_offset,
            log.high_watermark,
            log.start_offset,
            quorum.epoch,
        )
        if state != self._last_state:
            response = rules_serving.fetch_response(quorum, ErrorCode.NONE)
            response.responses[0].partitions[0].records = self._raft.store.read(
                fetch_offset, quorum.settings.fetch_max_bytes, log.end_offset
            )
            frame = b"".join(
                response_chunks(ApiKey.FETCH, version, 0, fitted_response(response, version))
            )
            self._last_state, self._last_answer = (
                state,
                Encoded(frame[SIZE_AND_CORRELATION_ID_BYTES:]),
            )
        return self._last_answer

    def _begin(self, request: FetchRequest, version: int, later: Deferred) -> None:
        raft = self._raft
        quorum = raft.quorum
        response = rules_serving.refuse_fetch(quorum, request)
        if response is None:
            response = rules_serving.fetch_outcome(quorum, request, raft.now_ms(), raft.wall_ms())
            if quorum.effects:
                raft.run()
        if response is not None:
            later.complete(fitted_response(response, version))
            return
        reader = self._reader(request)
        waiting = _Waiting(self, request, version, later, reader)
        if request.max_wait_ms == 0:
            if not waiting.try_complete():
                waiting.answer()
            return
        operation = self._waiting.try_complete_else_watch(waiting, (reader,), request.max_wait_ms)
        if operation is not None:
            later.when_abandoned(lambda: self._waiting.leave(operation))

    def _reader(self, request: FetchRequest) -> Reader:
        is_voter = self._raft.quorum.voters.latest.includes(asking_replica(request))
        return Reader.VOTER if is_voter else Reader.OBSERVER

    def _record_sent(self, replica_id: int, high_watermark: int | None) -> None:
        if replica_id < 0 or high_watermark is None:
            return
        self._reported.pop(replica_id, None)
        self._reported[replica_id] = high_watermark
        if len(self._reported) > REPLICAS_MAX:
            del self._reported[next(iter(self._reported))]

    def expire(self, waiting: "_Waiting") -> None:
        """Answer with the available data: the wait time is over."""
        self._raft.when_durable(lambda: self._read(waiting.answer))

    def fail_disk(self, refused: OSError) -> None:
        """The log could not be read.

        A failed disk stops the node, as for any other access to the log, so that another voter can
        become leader.
        """
        self._raft.fail_disk("read", refused)

    def _read(self, action: Callable[[], None]) -> None:
        try:
            action()
        except OSError as refused:
            self.fail_disk(refused)


class _Waiting:
    """A Fetch without new data."""

    __slots__ = (
        "_fetches",
        "_later",
        "_leader_epoch",
        "_offset",
        "_reader",
        "_replica_id",
        "_request",
        "_version",
    )

    def __init__(
        self,
        fetches: WaitingFetches,
        request: FetchRequest,
        version: int,
        later: Deferred,
        reader: Reader,
    ) -> None:
        self._fetches = fetches
        self._request = request
        self._version = version
        self._later = later
        self._reader = reader
        partition = request.topics[0].partitions[0]
        self._leader_epoch, self._offset = partition.current_leader_epoch, partition.fetch_offset
        self._replica_id = request.replica_state.replica_id

    def try_complete(self) -> bool:
        """Answer if there is new data for this replica, or if this node lost leadership of the
        epoch. If the disk fails, there is no answer, and nothing to wait for.
        """
        try:
            return self._answered()
        except OSError as refused:  # here, as another thread may make this attempt
            self._fetches.fail_disk(refused)
            return True

    def _answered(self) -> bool:
        refused = self._refused()
        if refused is not None:
            self._later.complete(refused)
            return True
        if not self._fetches.has_news(self._reader, self._replica_id, self._offset):
            return False
        self._later.complete(self._fetches.give(self._version, self._offset, self._replica_id))
        return True

    def answer(self) -> None:
        """Answer with the available data."""
        refused = self._refused()
        self._later.complete(
            self._fetches.give(self._version, self._offset, self._replica_id)
            if refused is None
            else refused
        )

    def expire(self) -> None:
        """Answer without new data."""
        self._fetches.expire(self)

    def _refused(self) -> Answer | None:
        return (
            None
            if self._fetches.leads(self._leader_epoch)
            else self._fetches.refused(self._request, self._version)
        )

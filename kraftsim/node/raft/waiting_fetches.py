"""Fetch requests of voters and observers on the node that leads: answered at once, or as soon as there is something to say.

A voter waits for records, and is woken when one is written: it must copy it before anybody can commit it. An observer may act only on what is
committed; it waits for a high watermark that it was not told yet, and is woken by the commit, so that one answer carries both. (Kafka wakes both by
the append, and tells of the high watermark with whatever comes next; KIP-1166 changes that: docs/deviations.md.)
Source: org.apache.kafka.raft.KafkaRaftClient.handleFetchRequest, KIP-595.
"""

from collections.abc import Callable
from enum import StrEnum

from kraftsim.core.raft import serving
from kraftsim.core.raft.fetch_messages import asking_replica
from kraftsim.core.raft.roles import Leader
from kraftsim.node.call import Answer, Deferred, Encoded
from kraftsim.node.purgatory import Purgatory
from kraftsim.node.raft.old_versions import fitted_response
from kraftsim.node.raft.raft_node import RaftNode
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import FetchRequest, ReplicaState
from protocol.requests import response_chunks

FIRST_VERSION_WITH_REPLICA_STATE = 15
SIZE_AND_CORRELATION_ID_BYTES = 8
REPLICAS_MAX = 1000
"""Anybody can claim any id: the one that was quiet for the longest time is forgotten first."""


class Reader(StrEnum):
    """Who waits, and so for what."""

    VOTER = "voter"
    OBSERVER = "observer"


class WaitingFetches:
    """The Fetch requests to one replica. `on_readable` after each write, each commit, and when this node leads no more."""

    def __init__(self, raft: RaftNode) -> None:
        self._raft = raft
        self._waiting: Purgatory[Reader] = Purgatory()
        self._told: dict[int, int] = {}
        """Replica id -> the high watermark that it was told."""
        self._last_told: tuple[int | None, ...] = ()
        self._last_answer = Encoded(b"")

    def fetch(self, request: FetchRequest, version: int) -> Answer | Deferred:
        """Answer at once with an error, a divergence, or records; otherwise wait for max_wait_ms."""
        if version < FIRST_VERSION_WITH_REPLICA_STATE:
            request.replica_state = ReplicaState(replica_id=request.replica_id)
        later = Deferred()
        self._raft.when_durable(lambda: self._read(lambda: self._begin(request, version, later)))
        return later if later.answer is None else later.answer

    def on_readable(self, *, is_committed: bool) -> None:
        """Look again at those who wait."""
        is_over = not self._raft.replica.is_leader
        if is_over or not is_committed:
            self._read(lambda: self._waiting.check(Reader.VOTER))
        if is_over or is_committed:
            self._read(lambda: self._waiting.check(Reader.OBSERVER))

    def close(self) -> None:
        """Forget everybody; the node goes down."""
        self._waiting.close()

    def refused(self, request: FetchRequest, version: int) -> Answer | None:
        """Return why a request cannot be answered with records, if so."""
        response = serving.refuse_fetch(self._raft.quorum, request)
        return None if response is None else fitted_response(response, version)

    def leads(self, leader_epoch: int) -> bool:
        """Tell whether this node leads an epoch still. Of what a request that waits can be refused for, nothing else can have changed."""
        quorum = self._raft.quorum
        return quorum.epoch == leader_epoch and isinstance(quorum.role, Leader)

    def has_news(self, reader: Reader, replica_id: int, fetch_offset: int) -> bool:
        """Tell whether there are records, or a high watermark that an observer does not know."""
        if self._raft.quorum.log.end_offset > fetch_offset:
            return True
        high_watermark = self._raft.high_watermark
        return reader is Reader.OBSERVER and replica_id >= 0 and high_watermark is not None and self._told.get(replica_id) != high_watermark

    def give(self, version: int, fetch_offset: int, replica_id: int) -> Encoded:
        """Return what there is from an offset on. Replicas that wait for the same are told the same, and it is built once for all of them."""
        quorum = self._raft.quorum
        log = quorum.log
        self._tell(replica_id, log.high_watermark)
        told = (version, fetch_offset, log.end_offset, log.high_watermark, log.start_offset, quorum.epoch)
        if told != self._last_told:
            response = serving.fetch_response(quorum, ErrorCode.NONE)
            response.responses[0].partitions[0].records = self._raft.store.read(fetch_offset, quorum.settings.fetch_max_bytes, log.end_offset)
            frame = b"".join(response_chunks(ApiKey.FETCH, version, 0, fitted_response(response, version)))
            self._last_told, self._last_answer = told, Encoded(frame[SIZE_AND_CORRELATION_ID_BYTES:])
        return self._last_answer

    def _begin(self, request: FetchRequest, version: int, later: Deferred) -> None:
        raft = self._raft
        quorum = raft.quorum
        response = serving.refuse_fetch(quorum, request)
        if response is None:
            response = serving.fetch_outcome(quorum, request, raft.now_ms(), raft.wall_ms())
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
        stay = self._waiting.admit(waiting, (reader,), request.max_wait_ms)
        if stay is not None:
            later.when_abandoned(lambda: self._waiting.leave(stay))

    def _reader(self, request: FetchRequest) -> Reader:
        is_voter = self._raft.quorum.voters.latest.includes(asking_replica(request))
        return Reader.VOTER if is_voter else Reader.OBSERVER

    def _tell(self, replica_id: int, high_watermark: int | None) -> None:
        if replica_id < 0 or high_watermark is None:
            return
        self._told.pop(replica_id, None)
        self._told[replica_id] = high_watermark
        if len(self._told) > REPLICAS_MAX:
            del self._told[next(iter(self._told))]

    def expire(self, waiting: "_Waiting") -> None:
        """Answer with what there is: the time is up."""
        self._raft.when_durable(lambda: self._read(waiting.answer))

    def _read(self, action: Callable[[], None]) -> None:
        """Do something that reads the log. A disk that refuses takes the node down, as wherever else the log is touched: another can lead."""
        try:
            action()
        except OSError as refused:
            self._raft.lose_disk("read", refused)


class _Waiting:
    """A Fetch that has nothing to be told yet."""

    __slots__ = ("_fetches", "_later", "_leader_epoch", "_offset", "_reader", "_replica_id", "_request", "_version")

    def __init__(self, fetches: WaitingFetches, request: FetchRequest, version: int, later: Deferred, reader: Reader) -> None:
        self._fetches = fetches
        self._request = request
        self._version = version
        self._later = later
        self._reader = reader
        partition = request.topics[0].partitions[0]
        self._leader_epoch, self._offset = partition.current_leader_epoch, partition.fetch_offset
        self._replica_id = request.replica_state.replica_id

    def try_complete(self) -> bool:
        """Answer if there is something new for this replica, or if this node leads its epoch no more."""
        refused = self._refused()
        if refused is not None:
            self._later.complete(refused)
            return True
        if not self._fetches.has_news(self._reader, self._replica_id, self._offset):
            return False
        self._later.complete(self._fetches.give(self._version, self._offset, self._replica_id))
        return True

    def answer(self) -> None:
        """Answer with what there is."""
        refused = self._refused()
        self._later.complete(self._fetches.give(self._version, self._offset, self._replica_id) if refused is None else refused)

    def expire(self) -> None:
        """Answer that there is nothing new."""
        self._fetches.expire(self)

    def _refused(self) -> Answer | None:
        return None if self._fetches.leads(self._leader_epoch) else self._fetches.refused(self._request, self._version)

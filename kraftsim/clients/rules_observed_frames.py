"""What clients sent and learned, read from the frames of their connections: bytes in, events out.

kraftsim's own clients emit events of their requests and results. Another client emits none, but its
frames show the same: `ClientObserver` follows all connections of one process to brokers and emits
RecordSent, RecordAcknowledged, TransactionEnded and the others for it. Bytes must arrive when they
matter: those of requests before a broker has them, those of responses before the client has them.

A response belongs to the first request of its connection with the same correlation id. What cannot
be read makes no claim: TLS, other protocols, APIs and versions that kraftsim does not know, old
message formats. Tokens of SASL without headers (SaslHandshake v0) are skipped.

Source: Kafka protocol guide; KIP-43, KIP-152 (SASL), KIP-511 (software names), KIP-516 (topic ids).
"""

from collections.abc import Callable

from kraftsim.clients.rules_observed_consumers import ObservedFetches, ObservedGroups, SentFetch
from kraftsim.clients.rules_observed_producers import (
    Emit,
    ObservedNames,
    ObservedProducers,
    SentBatch,
)
from protocol.api_keys import ApiKey
from protocol.frames import BadFrameSize, FrameReader
from protocol.malformed import MalformedMessage
from protocol.messages.k00_produce import ACKS_NONE, ProduceRequest, ProduceResponse
from protocol.messages.k01_fetch import FetchRequest, FetchResponse
from protocol.messages.k03_metadata import MetadataResponse
from protocol.messages.k08_offset_commit import OffsetCommitRequest, OffsetCommitResponse
from protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.messages.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from protocol.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from protocol.messages.k28_txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from protocol.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from protocol.requests import (
    RequestHead,
    UnsupportedApi,
    decode_request,
    decode_response_body,
    peek_correlation_id,
    read_request_head,
    route_of,
)
from protocol.schema import Message
from protocol.uuids import ZERO_UUID

FIRST_METADATA_WITH_IDS = 10
SASL_TOKENS_WITHOUT_HEADERS = 0
"""The version of SaslHandshake after which tokens follow as bare frames."""
Context = Message | list[SentBatch] | SentFetch | tuple[OffsetFetchRequest, int] | None
"""What is kept of a request until its response; None: the response is not read."""


class AwaitedResponse:
    """A request without its response so far."""

    __slots__ = ("api_key", "api_version", "client_id", "context", "correlation_id")

    def __init__(self, head: RequestHead, context: Context) -> None:
        self.api_key = head.api_key
        self.api_version = head.api_version
        self.correlation_id = head.correlation_id
        self.client_id = head.client_id or ""
        self.context = context


class ClientObserver:
    """All connections of one process to brokers. `name` is that of its host, and part of the names
    of its clients.
    """

    def __init__(self, name: str, emit: Emit) -> None:
        self.names = ObservedNames(name, emit)
        self.producers = ObservedProducers(self.names, emit, self.name_of)
        self.fetches = ObservedFetches(emit, self.name_of)
        self.groups = ObservedGroups(emit, self.name_of)
        self.unreadable_count = 0
        """How many frames of APIs that it reads could not be read."""
        self._topic_names: dict[bytes, str] = {}

    def connect(self, peer: str, *, is_copy: bool = False) -> "ObservedConnection":
        """Return the observer of a new connection to a broker, by its address.

        `is_copy`: a fault has opened it to send a request a second time.
        """
        return ObservedConnection(self, peer, is_copy=is_copy)

    def ended(self) -> None:
        """The process is gone, or the run is over: what it has not learned yet it never learns."""
        self.producers.forget()
        self.fetches.forget()
        self.groups.forget()
        self.names.forget()

    def name_of(self, name: str | None, topic_id: bytes) -> str | None:
        """Return the name of a topic, which a newer message identifies by its id alone."""
        return name or None if topic_id == ZERO_UUID else self._topic_names.get(topic_id)

    def learn_topics(self, response: MetadataResponse) -> None:
        """Process the ids of topics."""
        for topic in response.topics:
            if topic.name and topic.topic_id != ZERO_UUID:
                self._topic_names[topic.topic_id] = topic.name


class ObservedConnection:
    """One connection of a client: `sent` and `received` take its bytes, in any pieces, and never
    raise for what is in them.
    """

    __slots__ = (
        "_awaited",
        "_bare_tokens",
        "_from_broker",
        "_from_client",
        "_is_copy",
        "_is_readable",
        "_library",
        "_observer",
        "_peer",
        "_sends_bare_tokens",
    )

    def __init__(self, observer: ClientObserver, peer: str, *, is_copy: bool) -> None:
        self._observer = observer
        self._peer = peer
        self._is_copy = is_copy
        self._from_client = FrameReader()
        self._from_broker = FrameReader()
        self._awaited: list[AwaitedResponse] = []
        self._library = "unknown"
        self._is_readable = True
        """Whether the bytes have been Kafka frames so far."""
        self._sends_bare_tokens = False
        self._bare_tokens = 0
        """How many tokens without a header await their answer."""

    def sent(self, data: bytes) -> None:
        """Process bytes that the client writes, before the broker has them."""
        self._feed(self._from_client, data, self._request)

    def received(self, data: bytes) -> None:
        """Process bytes that arrived, before the client has them."""
        if not self._is_copy:
            self._feed(self._from_broker, data, self._response)

    def _feed(self, reader: FrameReader, data: bytes, take: Callable[[bytes], None]) -> None:
        if not self._is_readable:
            return
        try:
            frames = reader.feed(data)
        except BadFrameSize as error:
            frames = error.frames
            self._is_readable = False
        self._observer.names.library = self._library
        for frame in frames:
            try:
                take(frame)
            except UnsupportedApi:
                pass
            except MalformedMessage:
                self._observer.unreadable_count += 1

    # Requests
    # ----------------------------------------------------------------------------------------------

    def _request(self, frame: bytes) -> None:
        if self._sends_bare_tokens:
            if not _is_request(frame):
                self._bare_tokens += 1
                return
            self._sends_bare_tokens = False
        head = read_request_head(frame)
        if self._is_copy:
            if head.api_key == ApiKey.PRODUCE:
                copied = decode_request(head, frame)
                assert isinstance(copied, ProduceRequest), "the request of its API"
                self._observer.producers.produced(copied, head.client_id or "", is_copy=True)
            return
        awaited = AwaitedResponse(head, None)
        self._awaited.append(awaited)
        if head.api_key not in READ_APIS:
            if head.api_key == ApiKey.SASL_HANDSHAKE:
                self._sends_bare_tokens = head.api_version == SASL_TOKENS_WITHOUT_HEADERS
            return
        message = decode_request(head, frame)
        awaited.context = self._asked(message, head)
        if isinstance(message, ProduceRequest) and message.acks == ACKS_NONE:
            self._awaited.remove(awaited)  # no response comes

    def _asked(self, message: Message, head: RequestHead) -> Context:
        """Emit what a request says; return what is needed to read its response."""
        client_id = head.client_id or ""
        observer = self._observer
        match message:
            case ProduceRequest():
                return observer.producers.produced(message, client_id)
            case FetchRequest():
                return observer.fetches.asked(message, observer.names.shared(client_id), self._peer)
            case ApiVersionsRequest():
                if message.client_software_name:
                    self._library = (
                        f"{message.client_software_name} {message.client_software_version}"
                    )
                return None
            case OffsetFetchRequest():
                name = observer.names.shared(client_id)
                return message, observer.groups.offsets_asked(message, name)
            case OffsetCommitRequest():
                observer.groups.commit_sent(message, observer.names.shared(client_id))
            case AddPartitionsToTxnRequest():
                observer.producers.partitions_added(message, client_id)
            case AddOffsetsToTxnRequest():
                observer.producers.offsets_added(message, client_id)
            case TxnOffsetCommitRequest():
                observer.producers.offsets_sent(message, client_id)
            case EndTxnRequest():
                observer.producers.end_asked(message)
            case _ if head.api_key == ApiKey.METADATA:
                return message if head.api_version >= FIRST_METADATA_WITH_IDS else None
        return message

    # Responses
    # ----------------------------------------------------------------------------------------------

    def _response(self, frame: bytes) -> None:
        if self._bare_tokens:
            self._bare_tokens -= 1
            return
        correlation_id = peek_correlation_id(frame)
        for index, awaited in enumerate(self._awaited):
            if awaited.correlation_id == correlation_id:
                del self._awaited[index]
                if awaited.context is not None:
                    message = decode_response_body(awaited.api_key, awaited.api_version, frame)
                    self._answered(awaited, message)
                return

    def _answered(self, awaited: AwaitedResponse, message: Message) -> None:
        """Emit what a response says."""
        observer, context = self._observer, awaited.context
        producers, groups = observer.producers, observer.groups
        match context, message:
            case list(), ProduceResponse():
                producers.answered(context, message)
            case SentFetch(), FetchResponse():
                observer.fetches.answered(context, message)
            case _, MetadataResponse():
                observer.learn_topics(message)
            case InitProducerIdRequest(), InitProducerIdResponse():
                producers.initialized(context, message, awaited.client_id)
            case AddPartitionsToTxnRequest(), AddPartitionsToTxnResponse():
                producers.partitions_answered(context, message)
            case AddOffsetsToTxnRequest(), AddOffsetsToTxnResponse():
                producers.offsets_added_answered(context, message)
            case TxnOffsetCommitRequest(), TxnOffsetCommitResponse():
                producers.offsets_answered(context, message)
            case EndTxnRequest(), EndTxnResponse():
                producers.end_answered(context, message)
            case (OffsetFetchRequest() as request, int(question)), OffsetFetchResponse():
                name = observer.names.shared(awaited.client_id)
                groups.offsets_answered(request, message, name, question)
            case _:
                self._answered_member(awaited, message)

    def _answered_member(self, awaited: AwaitedResponse, message: Message) -> None:
        """Emit what a response says to a member of a group."""
        groups, name = self._observer.groups, self._observer.names.shared(awaited.client_id)
        match awaited.context, message:
            case OffsetCommitRequest() as request, OffsetCommitResponse():
                groups.commit_answered(request, message, name)
            case JoinGroupRequest() as request, JoinGroupResponse():
                groups.joined(request, message, name)
            case SyncGroupRequest() as request, SyncGroupResponse():
                groups.synced(request, message, name)
            case HeartbeatRequest() as request, HeartbeatResponse():
                groups.beat(request, message, name)
            case ConsumerGroupHeartbeatRequest() as request, ConsumerGroupHeartbeatResponse():
                groups.group_beat(request, message, name)


READ_APIS = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.SYNC_GROUP,
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
)


def _is_request(frame: bytes) -> bool:
    """Return whether a frame after SaslHandshake v0 begins like a request, and is no token."""
    try:
        head = read_request_head(frame)
        route_of(head.api_key, head.api_version)
    except (MalformedMessage, UnsupportedApi):
        return False
    return True

"""What the frames of a consumer claim: the records that reached it, its membership, and offsets;
and that connections which cannot be read claim nothing and break nothing.
"""

import struct
from random import Random

import pytest

from kraftsim.clients.events import RecordAcknowledged, RecordRead, RecordSent
from kraftsim.clients.events_transactions import (
    MembershipLost,
    MemberStable,
    OffsetCommitSent,
    OffsetLearned,
    OffsetsAsked,
)
from kraftsim.clients.rules_observed_frames import READ_APIS
from protocol.api_keys import ApiKey
from protocol.codec.tree import layout_of
from protocol.errors import ErrorCode
from protocol.examples import example
from protocol.messages import registry
from protocol.messages.k01_fetch import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from protocol.messages.k03_metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from protocol.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from protocol.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from protocol.messages.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol.records.batches import build_batch
from protocol.records.control_records import ControlType, EndTxnMarker, build_control_record
from protocol.records.record import Record
from protocol.requests import request_chunks, response_chunks
from protocol.schema import declaration_of
from protocol.version_prefixed import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    build_assignment,
)
from tests.core.observed_frames import TOPIC, Talk, batch

ID = b"i" * 16


def fetch(
    *offsets: tuple[int, int],
    isolation: int = READ_UNCOMMITTED,
    session: tuple[int, int] = (0, -1),
    topic_id: bytes | None = None,
    forgotten: tuple[int, ...] = (),
) -> FetchRequest:
    """Ask for (partition, offset) pairs."""
    topic = FetchTopic(
        topic=TOPIC,
        partitions=[
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1000)
            for partition, offset in offsets
        ],
    )
    if topic_id is not None:
        topic.topic, topic.topic_id = "", topic_id
    forget = [ForgottenTopic(topic=TOPIC, partitions=list(forgotten))] if forgotten else []
    return FetchRequest(
        max_wait_ms=1,
        min_bytes=1,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=[topic] if offsets else [],
        forgotten_topics_data=forget,
    )


def fetched(
    records: bytes,
    *,
    partition: int = 0,
    aborted: tuple[tuple[int, int], ...] = (),
    session_id: int = 0,
    topic_id: bytes | None = None,
    error_code: int = 0,
) -> FetchResponse:
    """Return the batches of one partition."""
    data = PartitionData(
        partition_index=partition,
        error_code=error_code,
        high_watermark=100,
        aborted_transactions=[
            AbortedTransaction(producer_id=each, first_offset=offset) for each, offset in aborted
        ],
        records=records,
    )
    topic = FetchableTopicResponse(topic=TOPIC, partitions=[data])
    if topic_id is not None:
        topic.topic, topic.topic_id = "", topic_id
    return FetchResponse(session_id=session_id, responses=[topic])


def marker(kind: ControlType, producer: tuple[int, int], offset: int) -> bytes:
    """Return the batch of a transaction marker."""
    return build_batch(
        [Record(offset, 0, *build_control_record(kind, EndTxnMarker(coordinator_epoch=0)))],
        base_offset=offset,
        producer_id=producer[0],
        producer_epoch=producer[1],
        transactional=True,
        control=True,
    )


def read(talk: Talk) -> list[tuple[str, int]]:
    return [(event.record_key, event.offset) for event in talk.of(RecordRead)]


# Records
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 11, 12])
def test_records_count_from_the_fetch_offset_on(version: int) -> None:
    """A response begins with the whole batch that has the offset."""
    talk = Talk()
    data = batch("a", "b", "c", base_offset=5) + batch("d", base_offset=8)
    talk.exchange(ApiKey.FETCH, version, fetch((0, 6)), fetched(data))
    assert read(talk) == [("b", 6), ("c", 7), ("d", 8)]
    assert {(event.client_id, event.is_read_committed) for event in talk.of(RecordRead)} == {
        ("app-1/shop", False)
    }


@pytest.mark.parametrize("isolation", [READ_COMMITTED, READ_UNCOMMITTED])
def test_aborted_records_reach_only_a_read_uncommitted_consumer(isolation: int) -> None:
    """The consumer drops what the list of aborted transactions names, up to the marker; markers
    reach no application.
    """
    talk = Talk()
    data = (
        batch("x", producer=(1, 0), sequence=0, transactional=True, base_offset=0)
        + batch("y", producer=(2, 0), sequence=0, transactional=True, base_offset=1)
        + marker(ControlType.ABORT, (1, 0), 2)
        + marker(ControlType.COMMIT, (2, 0), 3)
        + batch("z", producer=(1, 0), sequence=1, transactional=True, base_offset=4)
        + batch("plain", base_offset=5)
    )
    talk.exchange(
        ApiKey.FETCH, 11, fetch((0, 0), isolation=isolation), fetched(data, aborted=((1, 0),))
    )
    committed = [("y", 1), ("z", 4), ("plain", 5)]
    assert read(talk) == (committed if isolation == READ_COMMITTED else [("x", 0), *committed])


def test_fetch_session_keeps_the_offsets_of_its_partitions() -> None:
    """An incremental request names what has changed, and a response what has data (KIP-227)."""
    talk = Talk()
    whole = batch("a", "b", base_offset=10)
    talk.exchange(
        ApiKey.FETCH, 11, fetch((0, 10), (1, 11), session=(0, 0)), fetched(b"", session_id=77)
    )
    talk.exchange(
        ApiKey.FETCH, 11, fetch(session=(77, 1)), fetched(whole, partition=1, session_id=77)
    )
    assert read(talk) == [("b", 11)]
    talk.exchange(ApiKey.FETCH, 11, fetch((1, 12), session=(77, 2)), fetched(whole, session_id=77))
    assert read(talk) == [("b", 11), ("a", 10), ("b", 11)]
    talk.exchange(
        ApiKey.FETCH,
        11,
        fetch(session=(77, 3), forgotten=(0,)),
        fetched(whole, session_id=77),
    )
    assert len(read(talk)) == 3


def test_session_of_another_broker_or_an_unknown_one_claims_nothing() -> None:
    """Its fetch offsets are unknown."""
    talk = Talk()
    talk.exchange(ApiKey.FETCH, 11, fetch((0, 0), session=(0, 0)), fetched(b"", session_id=77))
    talk.exchange(
        ApiKey.FETCH, 11, fetch(session=(77, 1)), fetched(batch("a"), session_id=77), peer="b2"
    )
    assert not read(talk)


def test_session_continues_on_another_connection() -> None:
    """A session belongs to the broker, not to the connection."""
    talk = Talk()
    talk.exchange(ApiKey.FETCH, 11, fetch((0, 0), session=(0, 0)), fetched(b"", session_id=77))
    talk.lose()
    talk.exchange(ApiKey.FETCH, 11, fetch(session=(77, 1)), fetched(batch("a"), session_id=77))
    assert read(talk) == [("a", 0)]


@pytest.mark.parametrize("version", [13, 17])
def test_fetch_with_topic_ids(version: int) -> None:
    """Names come from Metadata (KIP-516)."""
    talk = Talk()
    request, response = fetch((0, 0), topic_id=ID), fetched(batch("a"), topic_id=ID)
    talk.exchange(ApiKey.FETCH, version, request, response)
    assert not read(talk)
    topic = MetadataResponseTopic(name=TOPIC, topic_id=ID)
    talk.exchange(ApiKey.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse(topics=[topic]))
    talk.exchange(ApiKey.FETCH, version, request, response)
    assert [(event.topic, event.record_key) for event in talk.of(RecordRead)] == [(TOPIC, "a")]


def test_damaged_batch_reaches_no_application() -> None:
    """A consumer checks the checksum, and reads nothing from there on."""
    talk = Talk()
    damaged = bytearray(batch("b", base_offset=1))
    damaged[-1] ^= 1
    data = batch("a") + bytes(damaged) + batch("c", base_offset=2)
    talk.exchange(ApiKey.FETCH, 11, fetch((0, 0)), fetched(data))
    assert read(talk) == [("a", 0)]


def test_torn_batch_at_the_end_is_read_by_the_next_fetch() -> None:
    """A response may end inside a batch."""
    talk = Talk()
    talk.exchange(
        ApiKey.FETCH, 11, fetch((0, 0)), fetched(batch("a") + batch("b", base_offset=1)[:-3])
    )
    assert read(talk) == [("a", 0)]


# Groups
# --------------------------------------------------------------------------------------------------


def join(talk: Talk, *, assigned: bytes, protocol_type: str = "consumer") -> None:
    talk.exchange(
        ApiKey.JOIN_GROUP,
        5,
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=1,
            rebalance_timeout_ms=1,
            member_id="",
            protocol_type=protocol_type,
            protocols=[],
        ),
        JoinGroupResponse(generation_id=3, protocol_name="range", leader="m", member_id="m"),
    )
    talk.exchange(
        ApiKey.SYNC_GROUP,
        3,
        SyncGroupRequest(group_id="g", generation_id=3, member_id="m", assignments=[]),
        SyncGroupResponse(assignment=assigned),
    )


ASSIGNED = build_assignment(
    ConsumerProtocolAssignment(
        assigned_partitions=[AssignedPartitions(topic="in", partitions=[0, 2])]
    )
)


def test_classic_member_is_stable_and_expelled_once() -> None:
    """SyncGroup has its assignment; the first error that means removal ends its membership."""
    talk = Talk()
    join(talk, assigned=ASSIGNED)
    assert [
        (event.group_id, event.member_id, event.generation_id, event.assignment)
        for event in talk.of(MemberStable)
    ] == [("g", "m", 3, "in-0,in-2")]
    beat = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")
    for error in (
        ErrorCode.NONE,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ):
        talk.exchange(ApiKey.HEARTBEAT, 3, beat, HeartbeatResponse(error_code=error))
    assert [(event.generation_id, event.error_code) for event in talk.of(MembershipLost)] == [
        (3, ErrorCode.UNKNOWN_MEMBER_ID)
    ]


@pytest.mark.parametrize(
    ("protocol_type", "assigned"), [("connect", b"\x00\x01\x00"), ("consumer", b"\x00\x01\xff")]
)
def test_assignment_of_another_kind_claims_nothing(protocol_type: str, assigned: bytes) -> None:
    """Kafka Connect and others put bytes of their own there."""
    talk = Talk()
    join(talk, assigned=assigned, protocol_type=protocol_type)
    assert not talk.of(MemberStable)


def test_member_of_a_consumer_group_is_stable_in_each_epoch() -> None:
    """A heartbeat response has the assignment only when it changes (KIP-848)."""
    talk = Talk()
    topic = MetadataResponseTopic(name="in", topic_id=ID)
    talk.exchange(ApiKey.METADATA, 12, MetadataRequest(topics=[]), MetadataResponse(topics=[topic]))
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0)
    assignment = Assignment(topic_partitions=[TopicPartitions(topic_id=ID, partitions=[1])])
    for epoch, assigned, error in (
        (1, assignment, 0),
        (1, None, 0),
        (2, None, 0),
        (0, None, ErrorCode.FENCED_MEMBER_EPOCH),
    ):
        talk.exchange(
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            0,
            request,
            ConsumerGroupHeartbeatResponse(
                error_code=error, member_id="m", member_epoch=epoch, assignment=assigned
            ),
        )
    stable = [(event.generation_id, event.assignment) for event in talk.of(MemberStable)]
    assert stable == [(1, "in-1"), (2, "in-1")]
    assert [event.generation_id for event in talk.of(MembershipLost)] == [2]


@pytest.mark.parametrize("version", [5, 7])
def test_learned_offsets_of_one_group(version: int) -> None:
    """Up to v7 a request is for one group."""
    talk = Talk()
    partition = OffsetFetchResponsePartition(
        partition_index=1, committed_offset=8, metadata=None, error_code=0
    )
    talk.exchange(
        ApiKey.OFFSET_FETCH,
        version,
        OffsetFetchRequest(
            group_id="g",
            topics=[OffsetFetchRequestTopic(name="in", partition_indexes=[1])],
            require_stable=version >= 7,
        ),
        OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="in", partitions=[partition])]),
    )
    assert [(e.group_id, e.question, e.is_stable) for e in talk.of(OffsetsAsked)] == [
        ("g", 1, version >= 7)
    ]
    assert [(e.question, e.topic, e.partition, e.offset) for e in talk.of(OffsetLearned)] == [
        (1, "in", 1, 8)
    ]


def test_learned_offsets_of_several_groups() -> None:
    """Since v8; an error of the group is that of its partitions."""
    talk = Talk()
    partition = OffsetFetchResponsePartitions(
        partition_index=1, committed_offset=-1, metadata=None, error_code=0
    )
    topics = [OffsetFetchResponseTopics(name="in", partitions=[partition])]
    groups = [
        OffsetFetchResponseGroup(group_id=name, topics=topics, error_code=error)
        for name, error in (("g", 0), ("h", ErrorCode.NOT_COORDINATOR))
    ]
    talk.exchange(
        ApiKey.OFFSET_FETCH,
        8,
        OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in "gh"]
        ),
        OffsetFetchResponse(groups=groups),
    )
    assert [event.group_id for event in talk.of(OffsetsAsked)] == ["g", "h"]
    assert [(e.group_id, e.error_code) for e in talk.of(OffsetLearned)] == [("g", 0), ("h", 16)]


def test_committed_offset_is_sent() -> None:
    """OffsetCommit, without a transaction."""
    talk = Talk()
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=4, committed_metadata=""
    )
    topic = OffsetCommitRequestTopic(name="in", partitions=[partition])
    talk.send(ApiKey.OFFSET_COMMIT, 8, OffsetCommitRequest(group_id="g", topics=[topic]))
    assert [(event.group_id, event.offset) for event in talk.of(OffsetCommitSent)] == [("g", 4)]


# Connections
# --------------------------------------------------------------------------------------------------


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


@pytest.mark.parametrize("version", [0, 1])
def test_requests_after_sasl_are_read(version: int) -> None:
    """After SaslHandshake v0 tokens have no header; since v1 they are SaslAuthenticate requests."""
    talk = Talk()
    talk.exchange(
        ApiKey.SASL_HANDSHAKE,
        version,
        SaslHandshakeRequest(mechanism="SCRAM-SHA-256"),
        SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]),
    )
    if version == 0:
        for token in (b"n,,n=user,r=abc", b"\x00user\x00password", b"", b"\x00\x00\x00\x00\x00"):
            talk.connection().sent(frame(token))
            talk.connection().received(frame(b"r=abc" if token else b""))
    talk.produced(talk.produce(batch("a")), 3)
    assert [event.offset for event in talk.of(RecordAcknowledged)] == [3]


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: shop\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 200,  # a ClientHello of TLS
        frame(b"\x7f\xff" + b"\x00" * 10),  # an API that is not Kafka's
        frame(b"\x00\x00\x00\x63\x00\x00\x00\x01\xff\xff"),  # Produce v99
        frame(b"\x00\x00\x00\x09\x00\x00\x00\x01\xff\xff\x00\xff\xff\xff"),  # a broken body
        frame(b"\x00"),
        frame(b""),
        b"\xff\xff\xff\xff",
    ],
)
def test_unreadable_bytes_claim_nothing_and_raise_nothing(data: bytes) -> None:
    """An application may speak to anything, and a newer client with newer versions."""
    talk = Talk()
    talk.connection().sent(data)
    talk.connection().received(data)
    assert not talk.events
    talk.lose()
    talk.produce(batch("a"))
    assert [event.record_key for event in talk.of(RecordSent)] == ["a"]


@pytest.mark.parametrize("api", sorted(READ_APIS))
def test_any_message_is_survived_whole_changed_or_torn(api: ApiKey) -> None:
    """Frames of any content may come: from a client that is broken, or after a fault that changes
    bytes.
    """
    random = Random(int(api))
    talk = Talk()
    declared = declaration_of(registry.request_class(api)).versions
    for version in list(range(declared.first, declared.last + 1)) * 12:
        request, answer = (
            example(layout_of(kind, version), random.randrange)
            for kind in (registry.request_class(api), registry.response_class(api))
        )
        sent = b"".join(request_chunks(api, version, 1, "c", request))
        received = b"".join(response_chunks(api, version, 1, answer))
        for change_sent, change_received in ((0, 0), (1, 0), (0, 1)):
            connection = talk.observer.connect("b1")
            connection.sent(_changed(sent, random) if change_sent else sent)
            connection.received(_changed(received, random) if change_received else received)
    assert talk.observer.unreadable_count > 0 or api is ApiKey.API_VERSIONS


def _changed(data: bytes, random: Random) -> bytes:
    """Return a frame with another byte, or torn, with a size that fits."""
    content = bytearray(data[4:])
    if random.randrange(2):
        content[random.randrange(len(content))] = random.randrange(256)
    else:
        del content[random.randrange(len(content)) :]
    return frame(bytes(content))

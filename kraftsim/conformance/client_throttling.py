"""Client quotas: throttle times in responses, and muted connections.

Source: KIP-13, KIP-124, KIP-219; ClientQuotaManager.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from kraftsim.conformance.batches import LEADER, NONE, produce_request, wall_ms
from kraftsim.conformance.expect import Unmet, expect, expect_equal, expect_error, settled
from kraftsim.conformance.k01_fetch import fetch_request
from kraftsim.conformance.peer import Peer, PeerClosed, request_bytes
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import ProduceRequest, ProduceResponse
from protocol.messages.k01_fetch import FetchRequest, FetchResponse
from protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from protocol.messages.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.k48_describe_client_quotas import (
    EXACT_NAME,
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from protocol.messages.k49_alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
    QuotaAlteration,
)
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.requests import decode_response

REQUIREMENTS = Requirements("quotas", 2, "Throttling")
MANAGER = "KIP-219; kafka.server.ClientQuotaManager"
PRODUCER, CONSUMER, REQUEST, MUTATIONS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
BYTES_PER_SECOND = 10_000
TOO_MUCH_BYTES = 105_000
"""Five percent above the quota over the ten seconds of a new rate's window: half a second of
throttling.
"""
PAUSE_MS = range(400, 1500)
SOON_SECONDS = 0.35
ANSWERS_MAX = 20
PAUSE = "pause"
CREATIONS = "connection_creation_rate"
CONNECTIONS, ALLOWED_MIN, ALLOWED_MAX = 20, 8, 13
"""The number of simultaneous connections, and how many of them may be accepted: ten, with a
tolerance for timing.
"""


@contextmanager
def _limited(
    target: Target, address: str, client: str, key: str, value: float, user: str | None = None
) -> Iterator[None]:
    """Set a quota on a broker for the duration of the block."""
    entity = [EntityData(entity_type="client-id", entity_name=client)]
    if user is not None:
        entity.append(EntityData(entity_type="user", entity_name=user))

    def alter(operation: OpData) -> None:
        with target.peer() as peer:
            asked = AlterClientQuotasRequest(
                entries=[QuotaAlteration(entity=entity, ops=[operation])]
            )
            answer = peer.ask(
                asked, target.newest(ApiKey.ALTER_CLIENT_QUOTAS), AlterClientQuotasResponse
            )
        expect_error(answer.entries[0].error_code, ErrorCode.NONE, f"the quota of {client}")

    def is_known() -> bool:
        rows = [
            ComponentData(
                entity_type=part.entity_type, match_type=EXACT_NAME, match=part.entity_name
            )
            for part in entity
        ]
        with target.peer(address) as peer:
            asked = DescribeClientQuotasRequest(components=rows, strict=True)
            answer = peer.ask(
                asked, target.newest(ApiKey.DESCRIBE_CLIENT_QUOTAS), DescribeClientQuotasResponse
            )
        return bool(answer.entries)

    alter(OpData(key=key, value=value, remove=False))
    settled(is_known, bool, f"the quota of {client} is known")
    try:
        yield
    finally:
        alter(OpData(key=key, value=0.0, remove=True))


def _send(
    peer: Peer, client: str, body: ProduceRequest | FetchRequest | MetadataRequest, version: int
) -> None:
    peer.send_bytes(request_bytes(body, version, 7, client_id=client))


def _metadata(peer: Peer, client: str, version: int) -> MetadataResponse:
    _send(peer, client, MetadataRequest(topics=[]), version)
    _, answer = decode_response(ApiKey.METADATA, version, peer.receive_frame())
    assert isinstance(answer, MetadataResponse), "the request was Metadata"
    return answer


def _produce(peer: Peer, client: str, topic: str, size_bytes: int = TOO_MUCH_BYTES) -> int:
    """Produce one large record and return the throttle time."""
    records = build_batch([Record(timestamp=wall_ms(), value=bytes(size_bytes))])
    _send(peer, client, produce_request(topic, records, acks=LEADER), 9)
    _, answer = decode_response(ApiKey.PRODUCE, 9, peer.receive_frame())
    assert isinstance(answer, ProduceResponse), "the request was Produce"
    expect_error(answer.responses[0].partition_responses[0].error_code, ErrorCode.NONE, "producing")
    return answer.throttle_time_ms


def _create(peer: Peer, client: str, version: int, *topics: tuple[str, int]) -> dict[str, int]:
    """Create topics with so many partitions; return their errors and the throttle time."""
    rows = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in topics
    ]
    peer.send_bytes(
        request_bytes(
            CreateTopicsRequest(topics=rows, timeout_ms=15000), version, 7, client_id=client
        )
    )
    _, answer = decode_response(ApiKey.CREATE_TOPICS, version, peer.receive_frame())
    assert isinstance(answer, CreateTopicsResponse), "the request was CreateTopics"
    return {PAUSE: answer.throttle_time_ms} | {
        topic.name: topic.error_code for topic in answer.topics
    }


def _is_muted_for(target: Target, peer: Peer, client: str, pause_ms: int) -> None:
    """Check that the client gets no response before its throttle time is over, and one promptly
    afterwards.
    """
    began = time.monotonic()
    _metadata(peer, client, target.newest(ApiKey.METADATA))
    waited_ms = (time.monotonic() - began) * 1000
    expect(
        pause_ms - 150 < waited_ms < pause_ms + 1500,
        f"a client that is throttled for {pause_ms} ms is answered after {waited_ms:.0f} ms",
    )


@REQUIREMENTS.that(
    1,
    "a producer above its quota gets its response at once with the throttle time, and its "
    "connection is muted for that time",
    source=MANAGER,
)
def producers(target: Target) -> None:
    topic = target.topic()
    client = target.fresh_name("client")
    with (
        _limited(target, topic.leader, client, PRODUCER, BYTES_PER_SECOND),
        target.peer(topic.leader) as peer,
        target.peer(topic.leader) as other,
    ):
        expect_equal(
            _produce(peer, client, topic.name, 100), 0, "throttle time of a client below its quota"
        )
        began = time.monotonic()
        pause_ms = _produce(peer, client, topic.name)
        expect(pause_ms in PAUSE_MS, f"the client is throttled for {pause_ms} ms")
        expect(time.monotonic() - began < SOON_SECONDS, "the response was late")
        expect_equal(
            _produce(other, client + "-2", topic.name), 0, "throttle time of another client"
        )
        _is_muted_for(target, peer, client, pause_ms)


@REQUIREMENTS.that(
    2, "a consumer above its quota gets an empty response, and its records later", source=MANAGER
)
def consumers(target: Target) -> None:
    topic = target.topic()
    client = target.fresh_name("client")
    version = target.newest(ApiKey.FETCH)
    with target.peer(topic.leader) as peer:
        _produce(peer, "anybody", topic.name)
    with (
        _limited(target, topic.leader, client, CONSUMER, BYTES_PER_SECOND),
        target.peer(topic.leader) as peer,
    ):
        pauses, began = [], time.monotonic()
        for _ in range(ANSWERS_MAX):
            _send(peer, client, fetch_request(topic, version), version)
            _, answer = decode_response(ApiKey.FETCH, version, peer.receive_frame())
            assert isinstance(answer, FetchResponse), "the request was Fetch"
            expect_error(answer.error_code, ErrorCode.NONE, "the answer")
            if answer.responses:
                break
            pauses.append(answer.throttle_time_ms)
        else:
            raise Unmet(f"{ANSWERS_MAX} empty answers, with pauses of {pauses} ms")
        expect(bool(pauses) and pauses[0] in PAUSE_MS, f"pauses of {pauses} ms")
        expect(
            time.monotonic() - began > pauses[0] / 1000 - 0.15,
            "the records came before the first pause was over",
        )
        expect(
            len(bytes(answer.responses[0].partitions[0].records or b"")) > TOO_MUCH_BYTES,
            "the records are not whole",
        )


@REQUIREMENTS.that(
    3,
    "the quota of a user and client id takes precedence over that of the client id",
    source="ClientQuotaManager.DefaultQuotaCallback",
)
def precedence(target: Target) -> None:
    topic = target.topic()
    client = target.fresh_name("client")
    strict = _limited(target, topic.leader, client, PRODUCER, BYTES_PER_SECOND)
    generous = _limited(
        target, topic.leader, client, PRODUCER, BYTES_PER_SECOND * 1000, user="ANONYMOUS"
    )
    with strict, generous, target.peer(topic.leader) as peer:
        expect_equal(
            _produce(peer, client, topic.name),
            0,
            "throttle time of a client whose user has a higher quota",
        )


@REQUIREMENTS.that(
    4,
    "requests consume request time; a client above its request percentage is throttled for one "
    "window at most",
    source="ClientRequestQuotaManager",
)
def requests(target: Target) -> None:
    client = target.fresh_name("client")
    version = target.newest(ApiKey.METADATA)
    with _limited(target, target.address, client, REQUEST, 0.00001), target.peer() as peer:
        pause_ms = _metadata(peer, client, version).throttle_time_ms
        expect_equal(pause_ms, 1000, "throttle time in milliseconds")
        _is_muted_for(target, peer, client, pause_ms)


@REQUIREMENTS.that(5, "a producer with acks=0 above its quota is muted, too", source=MANAGER)
def without_answers(target: Target) -> None:
    topic = target.topic()
    client = target.fresh_name("client")
    records = build_batch([Record(timestamp=wall_ms(), value=bytes(TOO_MUCH_BYTES))])
    with (
        _limited(target, topic.leader, client, PRODUCER, BYTES_PER_SECOND),
        target.peer(topic.leader) as peer,
    ):
        _send(peer, client, produce_request(topic.name, records, acks=NONE), 9)
        began = time.monotonic()
        _metadata(peer, client, target.newest(ApiKey.METADATA))
        waited_ms = (time.monotonic() - began) * 1000
        expect(
            int(waited_ms) in PAUSE_MS, f"the next request was answered after {waited_ms:.0f} ms"
        )


@REQUIREMENTS.that(
    6,
    "topics above the controller mutation quota are rejected one by one with "
    "THROTTLING_QUOTA_EXCEEDED and a throttle time",
    source="KIP-599",
    since="3.5",
)
def mutations(target: Target) -> None:
    client, other = target.fresh_name("client"), target.fresh_name("client")
    version = target.newest(ApiKey.CREATE_TOPICS)
    one, two, three = (target.fresh_name("topic") for _ in range(3))
    with _limited(target, target.address, client, MUTATIONS, 2.0), target.peer() as peer:
        first = _create(peer, client, version, (one, 30), (two, 1))
        expect_equal(
            [first[one], first[two]],
            [ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED],
            "a topic of 30 partitions, and one more",
        )
        expect(
            3000 < first[PAUSE] < 4500,
            f"8 partitions above the bucket, 2 per second: {first[PAUSE]} ms",
        )
    with _limited(target, target.address, other, MUTATIONS, 2.0), target.peer() as peer:
        expect_equal(
            _create(peer, other, version, (three, 1)),
            {three: ErrorCode.NONE, PAUSE: 0},
            "a topic of a client below its rate",
        )


@REQUIREMENTS.that(
    7,
    "connections from an address above its connection rate are closed without a response after a "
    "delay, and the others are served",
    source="KIP-612",
    since="3.4",
)
def connections(target: Target) -> None:
    """A rate of 1 allows a burst of ten: a new rate is measured over ten seconds."""
    version = target.newest(ApiKey.ALTER_CLIENT_QUOTAS)
    any_address = [EntityData(entity_type="ip", entity_name=None)]
    with target.peer() as before, ExitStack() as opened:

        def alter(operation: OpData) -> None:
            asked = AlterClientQuotasRequest(
                entries=[QuotaAlteration(entity=any_address, ops=[operation])]
            )
            expect_error(
                before.ask(asked, version, AlterClientQuotasResponse).entries[0].error_code,
                ErrorCode.NONE,
                "the quota of all addresses",
            )

        alter(OpData(key=CREATIONS, value=1.0, remove=False))
        try:
            time.sleep(SOON_SECONDS)
            peers = [opened.enter_context(target.peer()) for _ in range(CONNECTIONS)]
            fates = [_is_served(peer, target.newest(ApiKey.METADATA)) for peer in peers]
        finally:
            alter(OpData(key=CREATIONS, value=0.0, remove=True))
        expect(
            ALLOWED_MIN <= sum(fates) <= ALLOWED_MAX,
            f"{sum(fates)} of {CONNECTIONS} connections were served",
        )
        expect(all(fates[:ALLOWED_MIN]), "the first connections were not served")
    settled(lambda: _is_served_now(target), bool, "connections without a quota are served")


def _is_served(peer: Peer, version: int) -> bool:
    try:
        _metadata(peer, "anybody", version)
    except PeerClosed:
        return False
    return True


def _is_served_now(target: Target) -> bool:
    with target.peer() as peer:
        return _is_served(peer, target.newest(ApiKey.METADATA))

"""Correlation and order: a connection has one request in process at a time, and responses are in
the order of the requests.

Source: Selector (a channel is muted until its response is sent); SocketServer; KIP-219.
"""

import time
from contextlib import suppress
from threading import Thread

from kraftsim.conformance.batches import batch, produce_request, wall_ms
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.peer import OutOfTime, Peer, framed, request_bytes
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target, TargetTopic
from kraftsim.conformance.wire_bytes import (
    answer_on,
    api_versions,
    expect_closed,
    head,
    int32,
    metadata,
    next_answer,
    string,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k00_produce import ProduceResponse
from protocol.messages.k03_metadata import MetadataRequest
from protocol.messages.k18_api_versions import ApiVersionsRequest
from protocol.messages.k22_init_producer_id import InitProducerIdRequest
from protocol.records.batches import build_batch
from protocol.records.record import Record
from protocol.requests import decode_response
from protocol.schema import Message

REQUIREMENTS = Requirements("wire", 6, "Correlation and order of responses")
MUTED = "SocketServer: a channel is muted until its answer is sent"
WAIT_MS = 400
SLACK_SECONDS = 0.05
"""The tolerance for clock differences."""
PIPELINED = 1000
PRODUCE_VERSION = 9
LARGE_RECORD_BYTES = 300_000
PAUSE_SECONDS = 0.03
"""The delay after which two pieces are usually read separately."""


def _waiting_fetch(topic: TargetTopic, correlation_id: int, wait_ms: int = WAIT_MS) -> bytes:
    """Fetch v4 of an empty partition with min_bytes 1: it is answered after max_wait_ms."""
    limits = int32(-1) + int32(wait_ms) + int32(1) + int32(1_000_000) + b"\x00"
    partition = int32(1) + int32(0) + bytes(8) + int32(1_000_000)
    return (
        head(ApiKey.FETCH, 4, correlation_id)
        + limits
        + int32(1)
        + string(topic.name.encode())
        + partition
    )


def _send_all(peer: Peer, payloads: list[bytes]) -> None:
    peer.send_bytes(b"".join(map(framed, payloads)))


def _send_all_if_possible(peer: Peer, payloads: list[bytes]) -> None:
    """For a thread: the main thread raises the error if a request could not be sent."""
    with suppress(OSError, OutOfTime):
        _send_all(peer, payloads)


@REQUIREMENTS.that(
    1, "requests of several APIs in one piece are answered in order", source=f"KIP-219; {MUTED}"
)
def pipelined_requests(target: Target) -> None:
    init = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60000)
    pattern: list[tuple[Message, int]] = [
        (MetadataRequest(topics=None), 9),
        (ApiVersionsRequest(), 0),
        (init, 1),
        (MetadataRequest(topics=[]), 4),
        (ApiVersionsRequest(), 2),
    ]
    payloads = [
        request_bytes(body, version, number)[4:]
        for number, (body, version) in enumerate(pattern * 4)
    ]
    with target.peer() as peer:
        _send_all(peer, payloads)
        for number, payload in enumerate(payloads):
            next_answer(peer, payload, f"request {number}")


@REQUIREMENTS.that(2, "a thousand pipelined requests are answered in order", source=MUTED)
def a_long_pipeline(target: Target) -> None:
    payloads = [
        api_versions(number) if number % 3 else metadata(number) for number in range(PIPELINED)
    ]
    with target.peer() as peer:
        _send_all(peer, payloads)
        for number, payload in enumerate(payloads):
            next_answer(peer, payload, f"request {number}")


@REQUIREMENTS.that(3, "a request after a waiting Fetch is answered after it", source=MUTED)
def behind_a_waiting_fetch(target: Target) -> None:
    topic = target.topic()
    payloads = [_waiting_fetch(topic, 1), api_versions(2), metadata(3)]
    started = time.monotonic()
    with target.peer(topic.leader) as peer:
        _send_all(peer, payloads)
        next_answer(peer, payloads[0], "the Fetch that waits")
        expect(
            time.monotonic() - started >= WAIT_MS / 1000 - SLACK_SECONDS,
            f"Fetch with nothing to read did not wait for {WAIT_MS} ms",
        )
        for payload in payloads[1:]:
            next_answer(peer, payload, "a request after it")


@REQUIREMENTS.that(
    4, "several pipelined Fetches that wait are processed one after the other", source=MUTED
)
def one_at_a_time(target: Target) -> None:
    topic = target.topic()
    payloads = [_waiting_fetch(topic, number, WAIT_MS // 2) for number in range(3)]
    started = time.monotonic()
    with target.peer(topic.leader) as peer:
        _send_all(peer, payloads)
        for number, payload in enumerate(payloads, start=1):
            next_answer(peer, payload, f"Fetch {number}")
            waited_seconds = time.monotonic() - started
            expect(
                waited_seconds >= number * (WAIT_MS // 2) / 1000 - SLACK_SECONDS,
                f"Fetch {number} was answered after {waited_seconds:.3f} s",
            )


@REQUIREMENTS.that(
    5, "a waiting Fetch does not delay other connections", source="SocketServer; DelayedFetch"
)
def beside_a_waiting_fetch(target: Target) -> None:
    topic = target.topic()
    with target.peer(topic.leader) as slow, target.peer(topic.leader) as quick:
        asked = _waiting_fetch(topic, 1, 2000)
        slow.send_bytes(framed(asked))
        started = time.monotonic()
        for number in range(5):
            answer_on(quick, metadata(number), "a request on another connection")
        expect(
            time.monotonic() - started < 2.0, "the other connection was answered after the Fetch"
        )


@REQUIREMENTS.that(
    6,
    "correlation ids may repeat, decrease and skip",
    source="ResponseHeader.json: a number is sent back",
)
def odd_correlation_ids(target: Target) -> None:
    payloads = [metadata(number) for number in (5, 5, 4, -3, 2**31 - 1, -(2**31), 5, 0)]
    with target.peer() as peer:
        _send_all(peer, payloads)
        for payload in payloads:
            next_answer(
                peer, payload, f"correlation id {int.from_bytes(payload[4:8], signed=True)}"
            )


@REQUIREMENTS.that(
    7,
    "correlation ids are independent between connections",
    source="RequestContext: a header belongs to its connection",
)
def independent_connections(target: Target) -> None:
    with target.peer() as one, target.peer() as other:
        for number in range(5):
            one.send_bytes(framed(metadata(number)))
            other.send_bytes(framed(api_versions(number)))
        for number in range(5):
            next_answer(other, api_versions(number), "the second connection")
            next_answer(one, metadata(number), "the first connection")


@REQUIREMENTS.that(
    8,
    "a Produce with acks=0 leaves no gap in the responses",
    source="KafkaApis.sendNoOpResponseExemptThrottle",
)
def no_gap(target: Target) -> None:
    topic = target.topic()
    silent = request_bytes(produce_request(topic.name, batch(), acks=0), PRODUCE_VERSION, 2)
    with target.peer(topic.leader) as peer:
        peer.send_bytes(
            framed(metadata(1)) + silent + framed(metadata(3)) + silent + framed(metadata(4))
        )
        for number in (1, 3, 4):
            next_answer(peer, metadata(number), "a request beside produces without acknowledgement")


@REQUIREMENTS.that(
    9,
    "a complete request is answered although the client has shut down its sending half",
    source="verified against Apache Kafka 3.9.1",
)
def half_closed(target: Target) -> None:
    with target.peer() as peer:
        peer.send_bytes(framed(metadata()))
        peer.finish_sending()
        next_answer(peer, metadata(), "a request before the end")
        expect_closed(peer, "after the last answer")


@REQUIREMENTS.that(
    10,
    "all complete requests before the client's shutdown are answered, then the connection is "
    "closed",
    source="verified against Apache Kafka 3.9.1",
)
def half_closed_pipeline(target: Target) -> None:
    payloads = [metadata(number) for number in range(20)]
    with target.peer() as peer:
        peer.send_bytes(b"".join(map(framed, payloads)) + framed(metadata(20))[:-1])
        peer.finish_sending()
        for payload in payloads:
            next_answer(peer, payload, "a request before the end")
        expect_closed(peer, "after the last answer, with half a request left")


@REQUIREMENTS.that(
    11,
    "a client that reads slowly gets all responses in order, and does not affect others",
    source="Selector: a channel is muted while it sends",
)
def slow_reader(target: Target) -> None:
    payloads = [api_versions(number) for number in range(3000)]
    with target.peer() as lazy, target.peer() as quick:
        sender = Thread(target=_send_all_if_possible, args=(lazy, payloads), daemon=True)
        sender.start()
        for number in range(5):
            answer_on(quick, metadata(number), "a request beside a client that does not read")
            time.sleep(SLACK_SECONDS)
        for number, payload in enumerate(payloads):
            next_answer(lazy, payload, f"request {number}")
        sender.join()


@REQUIREMENTS.that(
    12,
    "responses match their requests by content, not only by correlation id",
    source="RequestChannel",
)
def right_answers(target: Target) -> None:
    with target.peer() as peer:
        alone = [
            answer_on(peer, question, "its own request")[4:]
            for question in (api_versions(), metadata())
        ]
        payloads = [
            metadata(number) if number % 3 else api_versions(number) for number in range(40)
        ]
        _send_all(peer, payloads)
        for number, payload in enumerate(payloads):
            answer = next_answer(peer, payload, "in a pipeline")[4:]
            expect_equal(
                len(answer),
                len(alone[1 if number % 3 else 0]),
                f"bytes of the answer to request {number}",
            )


@REQUIREMENTS.that(
    13,
    "a large request that starts in the piece of a small one, while an earlier one waits, is "
    "processed in order, and so are later ones",
    source=f"NetworkReceive; {MUTED}",
)
def large_behind_waiting(target: Target) -> None:
    for begun_bytes in (2, 4, 1000):
        topic = target.topic()
        waiting, small = _waiting_fetch(topic, 1, WAIT_MS // 2), framed(metadata(2))
        values = [
            Record(timestamp=wall_ms(), value=bytes(range(250)) * (LARGE_RECORD_BYTES // 250))
        ]
        large = request_bytes(produce_request(topic.name, build_batch(values)), PRODUCE_VERSION, 3)
        behind = [metadata(4), api_versions(5), metadata(6)]
        end = b"".join(map(framed, behind))
        with target.peer(topic.leader) as peer:
            for piece in (
                framed(waiting) + small[:9],
                small[9:] + large[:begun_bytes],
                large[begun_bytes:140_000],
                large[140_000:] + end[:15],
                end[15:],
            ):
                peer.send_bytes(piece)
                time.sleep(PAUSE_SECONDS)
            next_answer(peer, waiting, "the Fetch that waits")
            next_answer(peer, small[4:], "the small request that came in two pieces")
            produced = decode_response(
                ApiKey.PRODUCE, PRODUCE_VERSION, next_answer(peer, large[4:], "the large request")
            )[1]
            assert isinstance(produced, ProduceResponse), "the version is known here"
            expect_error(
                produced.responses[0].partition_responses[0].error_code,
                ErrorCode.NONE,
                "the large request",
            )
            for payload in behind:
                next_answer(peer, payload, "a request after the large one")

"""Captures of every kind, ordered and disturbed: the same frames are decoded, or missing bytes are
reported.
"""

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from kraftsim.inspect.capture import CaptureSettings
from kraftsim.inspect.conversation import Exchange
from kraftsim.inspect.packets import NoCapture, opened
from kraftsim.inspect.parts import walk
from tests.inspect import packets
from tests.inspect.conversations import EXPECTED, RECORDS, conversation, frames, identities, read
from tests.inspect.packets import ACK, PUSH, Conversation, Packet, cut, pcap, pcapng


def assert_all_read(exchanges: list[Exchange]) -> None:
    """Every frame of the conversation was read, including records, and responses match their
    requests.
    """
    assert identities(exchanges) == EXPECTED
    assert [each.answers for each in exchanges] == [
        None if way == "request" else number for number, (*_, way) in enumerate(EXPECTED)
    ]
    assert not [trouble for each in exchanges for trouble in each.frame.tree.troubles]
    assert not [each.said for each in exchanges if each.said]
    values = [
        part.value
        for each in exchanges
        for path, part in walk(each.frame.tree.parts)
        if path.endswith("].value")
    ]
    assert len(values) == 2 * RECORDS + 1 and values[-1] == b"packed"


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize(
    "link",
    [packets.RAW_IP, packets.ETHERNET, packets.NULL, packets.LOOP, packets.COOKED, packets.COOKED2],
)
def test_frames_are_found_in_every_link_layer(link: int, version: int) -> None:
    exchanges, notices, _ = read(pcap(conversation().packets, link=link, version=version))
    assert_all_read(exchanges)
    assert not notices
    assert str(exchanges[0].node) == ("127.0.0.2:9092" if version == 4 else "[fe80::2]:9092")


@pytest.mark.parametrize(
    ("order", "nanoseconds"), [("<", False), (">", False), ("<", True), (">", True)]
)
def test_timestamps_of_a_capture_are_kept(order: str, nanoseconds: bool) -> None:
    exchanges, _, _ = read(pcap(conversation().packets, order=order, nanoseconds=nanoseconds))
    assert exchanges[0].time_ns == packets.FIRST_SECOND * 1_000_000_000 + 3 * (
        1 if nanoseconds else 1000
    )
    assert exchanges[1].after_ns == (1 if nanoseconds else 1000)


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_pcapng_of_two_interfaces_is_one_conversation(order: str) -> None:
    """Each has its own link type and timestamp resolution."""
    rows = [(number % 2, packet) for number, packet in enumerate(conversation().packets)]
    exchanges, notices, _ = read(pcapng(rows, [packets.ETHERNET, packets.COOKED2], order=order))
    assert_all_read(exchanges)
    assert not notices
    assert exchanges[0].time_ns == packets.FIRST_SECOND * 1_000_000_000 + 3000


def test_a_compressed_capture_is_read(tmp_path: Path) -> None:
    file = tmp_path / "talk.pcap.gz"
    file.write_bytes(gzip.compress(pcap(conversation().packets)))
    with open(file, "rb") as compressed:
        assert_all_read(read(opened(compressed).read())[0])


DISTURBANCES: dict[str, Callable[[list[Packet], Random], list[Packet]]] = {
    "every segment is duplicated": lambda sent, random: [
        packet for packet in sent for _ in range(2)
    ],
    "adjacent segments are swapped": lambda sent, random: [
        packet for pair in zip(sent[1::2], sent[::2], strict=False) for packet in pair
    ],
    "segments are retransmitted with other boundaries": lambda sent, random: [
        piece for packet in sent for piece in (packet, *_again(packet, random))
    ],
    "late segments": lambda sent, random: _late(sent, random),
    "keep-alives between": lambda sent, random: [
        each for packet in sent for each in (packet, _keep_alive(packet))
    ],
}


def _again(packet: Packet, random: Random) -> list[Packet]:
    if len(packet.payload) < 10:
        return []
    start = random.randrange(len(packet.payload) // 2)
    return [
        replace(
            packet,
            sequence=(packet.sequence + start) % 2**32,
            payload=packet.payload[start : start + 1 + random.randrange(500)],
        )
    ]


def _late(sent: list[Packet], random: Random) -> list[Packet]:
    """Segments of one direction are reordered by up to 6 positions, as on several paths; handshakes
    stay first.
    """
    places = {id(packet): number + random.randrange(6) for number, packet in enumerate(sent)}
    return sent[:3] + sorted(sent[3:], key=lambda packet: (places[id(packet)], packet.sequence))


def _keep_alive(packet: Packet) -> Packet:
    return replace(packet, sequence=(packet.sequence - 1) % 2**32, payload=b"\x00", flags=ACK)


@pytest.mark.parametrize(
    "first_sequence", [1000, 2**32 - 3000], ids=["plain", "sequence numbers wrap"]
)
@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_a_reordered_tcp_stream_is_reassembled(disturbance: str, first_sequence: int) -> None:
    sent = conversation(first_sequence=first_sequence, segment_bytes=300).packets
    disturbed = DISTURBANCES[disturbance](sent, Random(7))
    assert disturbed != sent
    exchanges, notices, _ = read(pcap(disturbed))
    assert sorted(identities(exchanges)) == sorted(EXPECTED)
    assert not [each for each in exchanges if each.said or each.frame.tree.troubles] and not notices


def _lost(way: bool, api_index: int, of_segment: int) -> list[Packet]:
    """Return the conversation without one segment of one large frame."""
    sent = conversation(segment_bytes=300).packets
    starts = [
        number
        for number, packet in enumerate(sent)
        if packet.from_client == way and len(packet.payload) == 300
    ]
    runs = [number for number in starts if number - 1 not in starts]
    lost = runs[api_index] + of_segment
    return sent[:lost] + sent[lost + 1 :]


@pytest.mark.parametrize(
    ("way", "index", "said_of"),
    [(True, 0, (0, 9, 2, "request")), (False, 0, (1, 16, 3, "response"))],
    ids=["a segment of a produce request", "a segment of a fetch response"],
)
def test_bytes_missing_inside_a_frame_lose_only_that_frame(
    way: bool, index: int, said_of: tuple[int, int, int, str]
) -> None:
    """Its size gives the start of the next one; its header is still known, so the response can be
    read.
    """
    exchanges, notices, _ = read(pcap(_lost(way, index, 2)))
    assert sorted(identities(exchanges)) == sorted(EXPECTED) and not notices
    said = {
        identity: each.said
        for identity, each in zip(identities(exchanges), exchanges, strict=True)
        if each.said
    }
    assert list(said) == [said_of] and said[said_of].startswith("300 of ")
    assert said[said_of].endswith("bytes are not in the capture, from byte 600")


def test_a_short_snapshot_length_loses_only_truncated_frames() -> None:
    exchanges, _, _ = read(pcap([cut(packet, 96) for packet in conversation().packets]))
    assert identities(exchanges) == EXPECTED
    assert [each.frame.api_name for each in exchanges if each.said] == ["Produce", "Fetch"]


def test_a_lost_frame_start_resynchronises_at_the_next_frame() -> None:
    """The size itself is lost."""
    exchanges, notices, _ = read(pcap(_lost(True, 0, 0)))
    assert [identity for identity in EXPECTED if identity not in identities(exchanges)] == [
        (0, 9, 2, "request"),
        (0, 9, 2, "response"),
    ]
    assert len(notices) == 1 and notices[0].text.startswith(
        f"{len(frames()[4][1]) - 300} bytes of the client are left out"
    )
    unknown = [each for each in exchanges if each.frame.api_key < 0]
    assert [each.said for each in unknown] == ["its request is not in the capture"]


@pytest.mark.parametrize("client_id", ["me", None])
@pytest.mark.parametrize("skipped_frames", [1, 2, 3, 4, 5])
def test_a_capture_started_midstream_begins_at_the_next_whole_exchange(
    skipped_frames: int, client_id: str | None
) -> None:
    """At the latest two frames later: the response to an uncaptured request cannot be read."""
    sent = conversation(opened=False, client_id=client_id)
    before = Conversation(segment_bytes=1400)
    for from_client, frame in frames(client_id)[:skipped_frames]:
        before.send(frame, from_client=from_client)
    exchanges, notices, _ = read(pcap(sent.packets[len(before.packets) :]))
    first_request = (skipped_frames + 1) // 2 * 2
    assert identities(exchanges) == EXPECTED[first_request:]
    assert len(notices) == skipped_frames % 2
    assert not [each for each in exchanges if each.frame.tree.troubles]


@pytest.mark.parametrize("client_id", ["me", None])
def test_a_capture_started_inside_a_frame_finds_the_next_frame(client_id: str | None) -> None:
    """Requests that share a segment: the next one may start at any position."""
    said = Conversation(segment_bytes=1400)
    said.send(
        b"".join(frame for from_client, frame in frames(client_id) if from_client), from_client=True
    )
    said.send(
        b"".join(frame for from_client, frame in frames(client_id) if not from_client),
        from_client=False,
    )
    first = replace(
        said.packets[0], payload=said.packets[0].payload[7:], sequence=said.packets[0].sequence + 7
    )
    exchanges, notices, _ = read(
        pcap([first, *said.packets[1:]]), CaptureSettings(ports=frozenset({9092}))
    )
    assert [identity for identity in identities(exchanges) if identity[3] == "request"] == [
        each for each in EXPECTED[2:] if each[3] == "request"
    ]
    assert [identity for identity in identities(exchanges) if identity[3] == "response"] == [
        each for each in EXPECTED[2:] if each[3] == "response"
    ]
    assert [notice.text.partition(" bytes of the ")[2] for notice in notices] == [
        "client are left out: the capture begins in the middle of the conversation",
        "node are left out: the capture begins in the middle of the conversation",
    ]


def test_connections_that_reuse_ports_are_kept_apart() -> None:
    twice = conversation().packets + conversation(first_sequence=900_000_000).packets
    exchanges, notices, _ = read(pcap(twice))
    assert identities(exchanges) == EXPECTED * 2 and not notices


def test_only_kafka_connections_are_read() -> None:
    web = (
        Conversation(client_port=40_000)
        .open()
        .send(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n", from_client=True)
    )
    secret = (
        Conversation(client_port=40_001)
        .open()
        .send(b"\x16\x03\x01\x02\x00" + bytes(300), from_client=True)
    )
    exchanges, notices, reader = read(pcap(web.packets + secret.packets + conversation().packets))
    assert_all_read(exchanges)
    assert not notices and reader.foreign == {"not like Kafka": 1, "TLS": 1}


def test_a_given_port_identifies_the_server() -> None:
    """Then frames that do not look like a request are read as one too."""
    odd = (
        Conversation()
        .open()
        .send(b"\x00\x00\x00\x08\x7f\x00\x00\x00\x00\x00\x00\x01", from_client=True)
    )
    exchanges, _, _ = read(pcap(odd.packets), CaptureSettings(ports=frozenset({9092})))
    assert [
        (each.frame.api_name, each.frame.is_unknown or bool(each.frame.tree.troubles))
        for each in exchanges
    ] == [("API 32512", True)]
    assert read(pcap(odd.packets), CaptureSettings(ports=frozenset({9093})))[0] == []


def test_bare_sasl_tokens_are_not_taken_for_requests() -> None:
    """After SaslHandshake v0, tokens follow without a header, until requests continue (changed by
    KIP-152).
    """
    from protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
    from protocol.requests import request_chunks, response_chunks

    said = Conversation().open()
    said.send(
        b"".join(request_chunks(17, 0, 90, "me", SaslHandshakeRequest(mechanism="PLAIN"))),
        from_client=True,
    )
    said.send(
        b"".join(response_chunks(17, 0, 90, SaslHandshakeResponse(mechanisms=["PLAIN"]))),
        from_client=False,
    )
    said.send(b"\x00\x00\x00\x0c\x00user\x00secret", from_client=True).send(
        b"\x00\x00\x00\x00", from_client=False
    )
    for from_client, frame in frames():
        said.send(frame, from_client=from_client)
    exchanges, notices, _ = read(pcap(said.packets))
    assert identities(exchanges)[:2] == [(17, 0, 90, "request"), (17, 0, 90, "response")]
    assert [each.said for each in exchanges[2:4]] == ["a bare SASL token"] * 2
    assert identities(exchanges)[4:] == EXPECTED and not notices


def test_requests_without_a_response_do_not_wait_for_one() -> None:
    """acks=0: the next response belongs to the next request."""
    from protocol.messages.k00_produce import ProduceRequest
    from protocol.requests import request_chunks

    said = (
        Conversation()
        .open()
        .send(b"".join(request_chunks(0, 9, 77, "me", ProduceRequest(acks=0))), from_client=True)
    )
    for from_client, frame in frames():
        said.send(frame, from_client=from_client)
    exchanges, _, _ = read(pcap(said.packets))
    assert identities(exchanges) == [(0, 9, 77, "request"), *EXPECTED]


def test_responses_with_a_reused_correlation_id_match_in_order() -> None:
    """As from a client that sends the same bytes repeatedly without waiting."""
    from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
    from protocol.requests import request_chunks, response_chunks

    said = Conversation().open()
    for version in (0, 3, 4):
        said.send(
            b"".join(request_chunks(22, version, 7, "me", InitProducerIdRequest())),
            from_client=True,
        )
    for version in (0, 3, 4):
        said.send(
            b"".join(response_chunks(22, version, 7, InitProducerIdResponse(producer_id=version))),
            from_client=False,
        )
    exchanges, _, _ = read(pcap(said.packets))
    assert [
        (each.answers, each.frame.api_version, each.frame.tree.is_whole) for each in exchanges[3:]
    ] == [(1, 0, True), (2, 3, True), (3, 4, True)]


@pytest.mark.parametrize("kept", [0, 4, 20, 30, 60])
def test_a_truncated_capture_file_is_read_to_its_end(kept: int) -> None:
    content = pcap(conversation().packets)
    if kept < 24:
        with pytest.raises(NoCapture):
            read(content[:kept])
    else:
        assert read(content[:kept])[0] == []
    exchanges, _, reader = read(content[:-10])
    assert identities(exchanges)[:9] == EXPECTED[:9] and reader.tally.ends_early


def test_random_bytes_in_a_connection_never_abort_the_reader() -> None:
    random = Random(11)
    for turn in range(60):
        noise = Conversation(client_port=1000 + turn).open()
        for _ in range(5):
            noise.send(
                random.randbytes(random.randrange(1, 200)), from_client=random.random() < 0.5
            )
        sent = noise.packets
        content = bytearray(pcap(conversation().packets if turn % 2 else sent))
        for _ in range(20):
            content[random.randrange(24, len(content))] = random.randrange(256)
        try:
            read(bytes(content), CaptureSettings(ports=frozenset({9092})) if turn % 3 else None)
        except NoCapture:
            continue


def test_a_large_capture_is_not_held_in_memory() -> None:
    """Of 40 MB of responses only the frames in flight are in memory."""
    import tracemalloc

    from protocol.messages.k01_fetch import (
        FetchableTopicResponse,
        FetchRequest,
        FetchResponse,
        PartitionData,
    )
    from protocol.requests import request_chunks, response_chunks

    body = FetchResponse(
        responses=[
            FetchableTopicResponse(topic="t", partitions=[PartitionData(records=bytes(1_000_000))])
        ]
    )
    said = Conversation(segment_bytes=60_000).open()
    for number in range(20):
        said.send(b"".join(request_chunks(1, 4, number, "me", FetchRequest())), from_client=True)
        said.send(b"".join(response_chunks(1, 4, number, body)), from_client=False)
    content = pcap(said.packets)
    from io import BytesIO

    from kraftsim.inspect.capture import CaptureReader

    file = BytesIO(content)
    tracemalloc.start()
    try:
        count = sum(1 for _ in CaptureReader(CaptureSettings(with_records=False)).read(file))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 40 and peak_bytes < 8_000_000 < len(content)


__all__ = ["PUSH"]

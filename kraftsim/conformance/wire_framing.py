"""Framing: an int32 size, then so many bytes, in any number of TCP segments.

Source: the protocol guide; NetworkReceive, SocketServer, Selector; socket.request.max.bytes. The
limit is Kafka's default of 104857600.
"""

import time

from kraftsim.conformance.expect import expect
from kraftsim.conformance.peer import framed
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.wire_bytes import (
    NOT_AN_API,
    answer_on,
    answers,
    api_versions,
    closes_after,
    expect_closed,
    head,
    int32,
    metadata,
    next_answer,
    still_answers,
)

REQUIREMENTS = Requirements("wire", 1, "Framing")
NETWORK_RECEIVE = "NetworkReceive.readFrom"
SOCKET_SERVER = "SocketServer.processCompletedReceives"
REQUEST_MAX_BYTES = 104_857_600
PAUSE_SECONDS = 0.1
LARGE_BYTES = 4 << 20


@REQUIREMENTS.that(1, "a frame of negative size closes the connection", source=NETWORK_RECEIVE)
def negative_size(target: Target) -> None:
    for size in (-1, -(2**31)):
        closes_after(target, int32(size), f"a size of {size}")
    still_answers(target)


@REQUIREMENTS.that(
    2,
    "a frame above socket.request.max.bytes closes the connection before it is read",
    source=NETWORK_RECEIVE,
)
def oversized_frame(target: Target) -> None:
    for size in (REQUEST_MAX_BYTES + 1, 2**31 - 1):
        closes_after(target, int32(size), f"a size of {size}")
    still_answers(target)


@REQUIREMENTS.that(
    3, "a frame of exactly socket.request.max.bytes is accepted", source=NETWORK_RECEIVE
)
def largest_frame(target: Target) -> None:
    with target.peer() as peer:
        peer.send_bytes(int32(REQUEST_MAX_BYTES))
        expect(peer.is_silent(), f"a size of {REQUEST_MAX_BYTES} closes the connection")


@REQUIREMENTS.that(4, "an empty frame closes the connection", source="RequestHeader.parse")
def empty_frame(target: Target) -> None:
    closes_after(target, framed(b""), "a size of 0")
    still_answers(target)


@REQUIREMENTS.that(
    5,
    "a frame that is truncated by the end of the connection is dropped without harm",
    source=NETWORK_RECEIVE,
)
def truncated_frame(target: Target) -> None:
    whole = framed(metadata())
    for size in (1, 3, 4, 9, len(whole) - 1):
        with target.peer() as peer:
            peer.send_bytes(whole[:size])
            peer.finish_sending()
            expect_closed(peer, f"{size} bytes of a request, then the end")
    still_answers(target)


@REQUIREMENTS.that(6, "a request that arrives byte by byte is answered", source=NETWORK_RECEIVE)
def byte_by_byte(target: Target) -> None:
    payload = metadata(17)
    with target.peer() as peer:
        for byte in framed(payload):
            peer.send_bytes(bytes([byte]))
        next_answer(peer, payload, "a request byte by byte")


@REQUIREMENTS.that(7, "a size that arrives in two pieces is reassembled", source=NETWORK_RECEIVE)
def size_in_pieces(target: Target) -> None:
    payload = metadata()
    for cut in (1, 2, 3):
        with target.peer() as peer:
            peer.send_bytes(framed(payload)[:cut])
            time.sleep(PAUSE_SECONDS)
            peer.send_bytes(framed(payload)[cut:])
            next_answer(peer, payload, f"a size split after {cut} bytes")


@REQUIREMENTS.that(
    8,
    "a request is answered once its last byte has arrived, and not before",
    source=NETWORK_RECEIVE,
)
def waits_for_the_last_byte(target: Target) -> None:
    payload = metadata()
    with target.peer() as peer:
        peer.send_bytes(framed(payload)[:-1])
        expect(
            peer.is_silent(),
            "a request without its last byte is answered, or closes the connection",
        )
        peer.send_bytes(payload[-1:])
        next_answer(peer, payload, "a request whose last byte came late")


@REQUIREMENTS.that(
    9,
    "two hundred frames in one piece are answered one by one",
    source="Selector.pollSelectionKeys: buffered receives",
)
def many_frames_at_once(target: Target) -> None:
    payloads = [metadata(number) for number in range(200)]
    with target.peer() as peer:
        peer.send_bytes(b"".join(map(framed, payloads)))
        for number, payload in enumerate(payloads):
            next_answer(peer, payload, f"frame {number}")


@REQUIREMENTS.that(10, "the boundaries of TCP segments do not matter", source=NETWORK_RECEIVE)
def pieces_of_every_size(target: Target) -> None:
    payloads = [metadata(number) if number % 2 else api_versions(number) for number in range(12)]
    stream = b"".join(map(framed, payloads))
    for size in (3, 5, 17, 64, 101):
        with target.peer() as peer:
            for start in range(0, len(stream), size):
                peer.send_bytes(stream[start : start + size])
            for number, payload in enumerate(payloads):
                next_answer(peer, payload, f"pieces of {size} bytes, request {number}")


@REQUIREMENTS.that(
    11, "a request before a malformed one in the same piece is answered", source=SOCKET_SERVER
)
def good_before_bad(target: Target) -> None:
    payload = metadata()
    with target.peer() as peer:
        peer.send_bytes(framed(payload) + framed(head(NOT_AN_API, 0)))
        next_answer(peer, payload, "a request before a bad one")
        expect_closed(peer, "the bad request")


@REQUIREMENTS.that(
    12, "a request after a malformed one in the same piece is not answered", source=SOCKET_SERVER
)
def good_behind_bad(target: Target) -> None:
    closes_after(
        target, framed(head(NOT_AN_API, 0)) + framed(metadata()), "a bad request before a good one"
    )
    still_answers(target)


@REQUIREMENTS.that(13, "a request of several megabytes is read completely", source=NETWORK_RECEIVE)
def large_request(target: Target) -> None:
    answers(
        target,
        {f"a request with {LARGE_BYTES} bytes after its body": metadata() + bytes(LARGE_BYTES)},
    )


@REQUIREMENTS.that(
    14,
    "an incomplete frame of the largest size does not delay other connections",
    source="SocketServer: one mute state per channel",
)
def announced_and_never_sent(target: Target) -> None:
    with target.peer() as idle, target.peer() as busy:
        idle.send_bytes(int32(REQUEST_MAX_BYTES // 100) + head(3, 9))
        for number in range(5):
            answer_on(
                busy, metadata(number), "a request beside a connection in the middle of a frame"
            )


@REQUIREMENTS.that(
    15, "a client of another protocol is disconnected: HTTP, TLS, SSH", source=NETWORK_RECEIVE
)
def other_protocols(target: Target) -> None:
    hello = bytes.fromhex("1603010200010001fc0303") + bytes(520)
    for what, data in {
        "HTTP": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        "TLS": hello,
        "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    }.items():
        closes_after(target, data, what)
    still_answers(target)


@REQUIREMENTS.that(16, "random bytes close the connection", source=SOCKET_SERVER)
def noise(target: Target) -> None:
    rubbish = bytes((step * 197 + 131) % 256 for step in range(256))
    for start in range(0, 64, 16):
        closes_after(target, framed(rubbish[start:]), f"random bytes from {start} on")
    still_answers(target)

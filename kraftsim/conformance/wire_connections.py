"""Connections: many at once, short ones, idle ones, and aborted ones.

Source: SocketServer (Acceptor, Processor); Selector. The limits on connections are Kafka's
defaults, which are none.
"""

from contextlib import ExitStack

from kraftsim.conformance.expect import expect
from kraftsim.conformance.peer import framed
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.wire_bytes import (
    answer_on,
    api_versions,
    expect_closed,
    head,
    int32,
    metadata,
    next_answer,
    still_answers,
    string,
)
from protocol.api_keys import ApiKey

REQUIREMENTS = Requirements("wire", 9, "Connections")
SELECTOR = "org.apache.kafka.common.network.Selector"
ACCEPTOR = "SocketServer: Acceptor"
MANY = 150


@REQUIREMENTS.that(1, "many simultaneous connections are all served", source=ACCEPTOR)
def many_connections(target: Target) -> None:
    with ExitStack() as open_ones:
        peers = [open_ones.enter_context(target.peer()) for _ in range(MANY)]
        for number, peer in enumerate(peers):
            peer.send_bytes(framed(metadata(number)))
        for number, peer in reversed(list(enumerate(peers))):
            next_answer(peer, metadata(number), f"connection {number} of {MANY}")


@REQUIREMENTS.that(
    2, "connections that are opened and closed without a request do no harm", source=ACCEPTOR
)
def silent_connections(target: Target) -> None:
    for _ in range(MANY):
        target.peer().close()
    still_answers(target)


@REQUIREMENTS.that(
    3, "an idle connection stays open", source=f"{SELECTOR}: connections.max.idle.ms"
)
def idle_connection(target: Target) -> None:
    with target.peer() as peer:
        expect(peer.is_silent(), "a new connection is closed, or something comes on it")
        answer_on(peer, metadata(), "the first request after a while")


@REQUIREMENTS.that(
    4,
    "a connection whose client shuts down its sending half without a request is closed",
    source=SELECTOR,
)
def finished_without_a_request(target: Target) -> None:
    with target.peer() as peer:
        peer.finish_sending()
        expect_closed(peer, "the end without a request")


@REQUIREMENTS.that(5, "a reset in the middle of a request does no harm", source=SELECTOR)
def reset_in_a_request(target: Target) -> None:
    for size in (0, 2, 4, 12):
        peer = target.peer()
        peer.send_bytes(framed(metadata())[:size])
        peer.reset()
    still_answers(target)


@REQUIREMENTS.that(6, "a reset before the response does no harm", source=SELECTOR)
def reset_before_the_answer(target: Target) -> None:
    for _ in range(20):
        peer = target.peer()
        peer.send_bytes(b"".join(framed(metadata(number)) for number in range(20)))
        peer.reset()
    still_answers(target)


@REQUIREMENTS.that(7, "a reset while a Fetch waits does no harm", source="DelayedFetch; Selector")
def reset_while_waiting(target: Target) -> None:
    topic = target.topic()
    limits = int32(-1) + int32(300) + int32(1) + int32(1_000_000) + b"\x00"
    partition = int32(1) + int32(0) + bytes(8) + int32(1_000_000)
    asked = head(ApiKey.FETCH, 4) + limits + int32(1) + string(topic.name.encode()) + partition
    with target.peer(topic.leader) as steady:
        for _ in range(5):
            peer = target.peer(topic.leader)
            peer.send_bytes(framed(asked))
            peer.reset()
        answer_on(steady, asked, "a Fetch that waits longer than those")
    still_answers(target)


@REQUIREMENTS.that(8, "a connection can be used for any number of requests", source=SELECTOR)
def long_conversation(target: Target) -> None:
    with target.peer() as peer:
        for number in range(300):
            answer_on(peer, api_versions(number), f"request {number}")

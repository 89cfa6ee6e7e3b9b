"""Malicious or faulty peers: a connection ends with a reason or continues, in bounded memory, and
never affects the node.

test_connection.py has the response to each kind of invalid bytes; these tests cover how they
arrive, and how many.
"""

import asyncio
import tracemalloc
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftsim.server.call import Answer, Call, Encoded
from kraftsim.server.events_connections import RequestRefused
from kraftsim.server.inbox import LARGE_FRAME_BYTES, Inbox
from protocol.frames import BadFrameSize, FrameReader
from tests.node.conftest import MakeWorld
from tests.node.stub_node import LOOPS, Server, StubNode, init, produce, run

KIBIBYTE, MEBIBYTE = 1 << 10, 1 << 20
LIMIT = 100


def framed(*frames: bytes) -> bytes:
    """Prefix each frame with its size."""
    return b"".join(len(frame).to_bytes(4) + frame for frame in frames)


@settings(deadline=None, derandomize=True, max_examples=400)
@given(
    st.lists(st.binary(max_size=40), max_size=8),
    st.sampled_from(
        [
            b"",
            b"\0",
            b"\0\0\0\x63" + b"x" * 98,
            b"\xff\xff\xff\xff",
            b"\0\0\0\x65",
            b"\x7f\xff\xff\xffxx",
        ]
    ),
    st.lists(st.integers(0, 400), max_size=12),
    st.integers(0, 3),
)
def test_inbox_returns_the_frames_of_the_stream_for_any_chunks(
    frames: list[bytes], tail: bytes, cuts: list[int], eager: int
) -> None:
    """And stops at the first invalid size.

    Frames are taken one at a time, all at once, or occasionally.
    """
    stream = framed(*frames) + tail
    inbox, found, expected = Inbox(LIMIT), list[bytes](), list[bytes]()
    try:
        expected = FrameReader(LIMIT).feed(stream)
    except BadFrameSize as bad:
        expected = bad.frames
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    for number, (first, end) in enumerate(pairwise(places)):
        inbox.take(stream[first:end])
        if not eager or number % eager == 0:
            take_frames(inbox, found, 1 if eager == 2 else 1000)
    take_frames(inbox, found, 1000)
    assert found == expected


def take_frames(inbox: Inbox, found: list[bytes], count: int) -> None:
    """Serve some frames as a connection does."""
    while inbox.waiting and count:
        buffer, position, end = inbox.waiting.popleft()
        while (
            count
            and inbox.begins_with_frame(buffer, position, end)
            and 0 <= (size := inbox.first_size(buffer, position)) <= LIMIT
        ):
            found.append(buffer[position + 4 : position + 4 + size])
            position += 4 + size
            count -= 1
        inbox.put_back(buffer, position, end)
        if inbox.waiting and not 0 <= inbox.first_size(*inbox.waiting[0][:2]) <= LIMIT:
            return


def test_slowly_arriving_frame_takes_no_more_memory_than_its_size() -> None:
    """A Python object per byte would take forty times as much, on each of a thousand
    connections.
    """
    inbox = Inbox(1 << 20)
    frame = framed(bytes(LARGE_FRAME_BYTES - 4))
    drops = [frame[place : place + 1] for place in range(256)]
    tracemalloc.start()
    for place in range(len(frame)):
        inbox.take(drops[0] if place > 3 else drops[place])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(end - position) for _, position, end in inbox.waiting] == [len(frame)]
    assert peak < 3 * len(frame)


def test_start_of_a_frame_does_not_retain_the_rest_of_its_read() -> None:
    """Otherwise a thousand clients could each retain a read of 256 KB with one byte."""
    inboxes = [Inbox(1 << 20) for _ in range(100)]
    tracemalloc.start()
    for inbox in inboxes:
        inbox.take(framed(bytes(250_000)) + b"\0\0\0\x0fhalf")
        buffer, _, end = inbox.waiting.popleft()
        inbox.put_back(buffer, end - 8, end)
        del buffer
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 200 * KIBIBYTE


@pytest.mark.parametrize("loop", LOOPS)
def test_many_requests_for_large_responses_are_served_at_the_clients_pace(
    make_world: MakeWorld, loop: str
) -> None:
    """A read of 256 KB can hold 5,000 requests for a megabyte each: they are served one by one."""
    answer = Encoded(bytes(MEBIBYTE))

    async def work(server: Server) -> None:
        client = await server.connect()
        client.pause_reading()
        client.send(init_of_fetch() * 5000)
        await asyncio.sleep(0.2)
        assert 0 < server.stub_node.served < 20
        client.resume_reading()
        for _ in range(30):
            assert len(await client.answer()) == 4 + MEBIBYTE
        client.writer.transport.abort()

    def large(call: Call) -> Answer:
        return answer

    run(loop, make_world(), work, StubNode(on_produce=large))


def init_of_fetch() -> bytes:
    """Build the smallest request whose response the test chooses."""
    return produce(1, b"")


@pytest.mark.parametrize("loop", LOOPS)
def test_thousands_of_invalid_frames_end_with_the_first(make_world: MakeWorld, loop: str) -> None:
    async def work(server: Server) -> None:
        for nothing in (
            bytes(4) * 60_000,
            framed(b"x") * 60_000,
            b"\0\0\0\x0a" + b"\xff" * 200_000,
        ):
            client = await server.connect()
            client.send(nothing)
            assert await client.rest() == b""
        assert server.stub_node.served == 0 and len(server.world.emitted_of(RequestRefused)) == 3

    run(loop, make_world(), work)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("cut", [1, 3, 4, 5, 13, 14, 15, 30])
def test_incomplete_frame_at_the_end_is_discarded(
    make_world: MakeWorld, loop: str, cut: int
) -> None:
    """Complete frames before it are answered."""

    async def work(server: Server) -> None:
        client = await server.connect()
        client.send(init(1), init(2)[:cut])
        client.writer.write_eof()
        assert (await client.rest())[4:8] == (1).to_bytes(4)
        assert (
            await server.closed_because() == "peer"
            and server.world.emitted_of(RequestRefused) == []
        )

    run(loop, make_world(), work)


@pytest.mark.parametrize("loop", LOOPS)
def test_clients_may_change_name_and_version_between_frames(
    make_world: MakeWorld, loop: str
) -> None:
    """The cached header is only reused for a byte-identical one."""
    rng = Random(3)
    names = [None, "", "a", "client", "client ", "客户", "n" * 30_000]
    asked = [(rng.choice(names), rng.choice([0, 1, 2, 4, 5])) for _ in range(200)]

    async def work(server: Server) -> None:
        received: list[str | None] = []
        serve = server.stub_node.serve
        # func-returns-value,method-assign: append returns None, and the stub is replaced
        server.stub_node.serve = lambda call: (received.append(call.client_id), serve(call))[1]  # type: ignore[func-returns-value,method-assign]
        client = await server.connect()
        client.send(*(init(number, name, version) for number, (name, version) in enumerate(asked)))
        for number in range(len(asked)):
            assert (await client.answer())[:4] == number.to_bytes(4)
        assert received == [name for name, _ in asked]

    run(loop, make_world(), work)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(4))
def test_garbage_behind_valid_frames_never_changes_their_responses(
    make_world: MakeWorld, loop: str, seed: int
) -> None:
    """Later bytes of the same read are not part of a frame: a body that would extend into them is
    malformed.
    """
    rng = Random(seed)

    async def work(server: Server) -> None:
        for _ in range(40):
            good = [init(number) for number in range(rng.randrange(5))]
            frame = bytearray(rng.choice((init(9), produce(9, b"records"))))
            frame[rng.randrange(4, len(frame))] = rng.randrange(256)
            if rng.random() < 0.5:
                size = rng.randrange(len(frame) - 4)
                frame = bytearray(size.to_bytes(4)) + frame[4 : 4 + size]
            client = await server.connect()
            client.send(*good, bytes(frame), rng.randbytes(rng.choice((0, 3, 100, 5000))))
            client.writer.write_eof()
            answers = await client.rest()
            for number in range(len(good)):
                assert answers[26 * number + 4 : 26 * number + 8] == number.to_bytes(4)

    run(loop, make_world(), work)

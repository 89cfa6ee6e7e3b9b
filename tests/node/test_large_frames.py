"""Large frames are received into a separate buffer, whatever precedes, is within, and follows them
(NetworkReceive).
"""

import asyncio
import resource
import tracemalloc
from collections.abc import Iterator
from random import Random

import pytest

from kraftsim.server.call import Answer, Call, Deferred, Encoded
from kraftsim.server.inbox import KEPT_BYTES_MAX, LARGE_FRAME_BYTES, LargeFrames
from protocol.messages.k22_init_producer_id import InitProducerIdResponse
from protocol.requests import decode_response
from tests.node.brokers import Client as BrokerClient
from tests.node.brokers import batch, running_cluster
from tests.node.conftest import MakeWorld
from tests.node.stub_node import LOOPS, Client, Server, StubNode, init, produce, records_of, run

KIBIBYTE, MEBIBYTE = 1 << 10, 1 << 20
SIZES = [
    10,
    200 * KIBIBYTE,
    MEBIBYTE,
    5 * MEBIBYTE,
    LARGE_FRAME_BYTES,
    LARGE_FRAME_BYTES - 70,
    300 * KIBIBYTE,
    299 * KIBIBYTE,
    20,
    30,
    2 * MEBIBYTE,
    1,
]
"""Growing, shrinking, around the limit between small and large, and above the reusable buffer
size.
"""


def pieces_of(stream: bytes, rng: Random) -> Iterator[bytes]:
    """Split a stream into arbitrary chunks."""
    position = 0
    while position < len(stream):
        size = rng.choice((1, 3, 4, 5, 100, 64 * KIBIBYTE, 300 * KIBIBYTE, MEBIBYTE))
        yield stream[position : position + size]
        position += size


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(3))
def test_all_record_bytes_arrive_for_any_sizes_and_chunks(
    make_world: MakeWorld, loop: str, seed: int
) -> None:
    """Responses are in request order; small requests between large ones are served normally."""
    rng = Random(seed)
    sent = [rng.randbytes(size) for size in rng.sample(SIZES, len(SIZES))]
    stream = b"".join(
        produce(number, records) + init(1000 + number) for number, records in enumerate(sent)
    )

    async def work(server: Server) -> list[bytes]:
        client = await server.connect()
        writing = asyncio.create_task(write_in_pieces(client, stream, rng))
        answers = [await client.answer() for _ in range(2 * len(sent))]
        await writing
        assert [int.from_bytes(answer[:4]) for answer in answers] == [
            number + more for number in range(len(sent)) for more in (0, 1000)
        ]
        return server.stub_node.received

    assert run(loop, make_world(), work) == sent


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("seed", range(4))
def test_bytes_that_arrive_during_a_waiting_request_are_served_after_it(
    make_world: MakeWorld, loop: str, seed: int
) -> None:
    """With acks=all a Produce waits for replicas; meanwhile the rest of a small frame arrives with
    the start of a large one.
    """
    rng = Random(seed)
    sent = [
        rng.randbytes(rng.choice((300, 90 * KIBIBYTE, 110 * KIBIBYTE, 200 * KIBIBYTE)))
        for _ in range(40)
    ]
    received: list[bytes] = []

    def wait(call: Call) -> Answer | Deferred:
        received.append(bytes(records_of(call)))
        deferred = Deferred()
        asyncio.get_running_loop().call_later(0.002, deferred.complete, Encoded(b"done"))
        return deferred

    async def work(server: Server) -> None:
        client = await server.connect()
        stream = b"".join(produce(number, records) for number, records in enumerate(sent))
        writing = asyncio.create_task(write_in_pieces(client, stream, rng))
        async with asyncio.timeout(20):
            assert [await client.answer() for _ in sent] == [
                number.to_bytes(4) + b"done" for number in range(len(sent))
            ]
        await writing

    run(loop, make_world(), work, StubNode(on_produce=wait))
    assert received == sent


async def write_in_pieces(client: Client, stream: bytes, rng: Random) -> None:
    """Send and wait, so that the chunks sometimes arrive separately."""
    for piece in pieces_of(stream, rng):
        client.send(piece)
        await client.writer.drain()
        await asyncio.sleep(0.001 if rng.random() < 0.2 else 0)


@pytest.mark.parametrize("loop", LOOPS)
def test_records_of_a_waiting_request_are_not_overwritten(make_world: MakeWorld, loop: str) -> None:
    """A deferred Produce reads its batch until it is answered, while the next large frames
    arrive.
    """
    held: list[tuple[memoryview, Deferred]] = []

    def hold(call: Call) -> Answer | Deferred:
        held.append((records_of(call), Deferred()))
        return held[-1][1]

    sent = [bytes([number]) * MEBIBYTE for number in range(1, 6)]

    async def work(server: Server) -> None:
        client = await server.connect()
        client.send(*(produce(number, records) for number, records in enumerate(sent)))
        for number, expected in enumerate(sent):
            async with asyncio.timeout(5):
                while len(held) <= number:
                    await asyncio.sleep(0.001)
            await asyncio.sleep(0.02)
            assert len(held) == number + 1, "one request is in process"
            assert all(bytes(view) == batch for (view, _), batch in zip(held, sent, strict=False))
            assert held[number][0] == expected
            held[number][1].complete(Encoded(b"done"))
            assert await client.answer() == number.to_bytes(4) + b"done"

    run(loop, make_world(), work, StubNode(on_produce=hold))


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("behind", "reason"),
    [
        (b"\xff\xff\xff\xff" + bytes(100), "a frame of -1 bytes"),
        ((2 * MEBIBYTE + 1).to_bytes(4), "a frame of 2097153 bytes is above the limit of 2097152"),
        (bytes(4), "bytes are needed"),
        (produce(1, bytes(MEBIBYTE))[:-1], "peer"),
        (b"\0\0", "peer"),
        (MEBIBYTE.to_bytes(4) + bytes(MEBIBYTE), "api key 0 is offered in versions 3 to 11, not 0"),
        (MEBIBYTE.to_bytes(4) + produce(1, b"")[4:22] + b"\xff" * MEBIBYTE, "api 0 v9"),
    ],
    ids=[
        "negative size",
        "size above the limit",
        "empty frame",
        "truncated large frame",
        "truncated size",
        "large frame of zeros",
        "large frame of noise",
    ],
)
def test_invalid_bytes_behind_a_large_frame_close_after_its_response(
    make_world: MakeWorld, loop: str, behind: bytes, reason: str
) -> None:
    async def work(server: Server) -> None:
        client = await server.connect()
        client.send(produce(7, bytes(MEBIBYTE)))
        assert await client.answer() == b"\0\0\0\7produced"
        client.send(produce(8, bytes(MEBIBYTE)), behind)
        client.writer.write_eof()
        assert await client.rest() == b"\0\0\0\x0c" + b"\0\0\0\x08produced"
        assert reason in await server.closed_because()

    run(loop, make_world(), work, settings={"socket.request.max.bytes": str(2 * MEBIBYTE)})


@pytest.mark.parametrize("loop", LOOPS)
def test_announced_frame_takes_no_memory_until_it_arrives(make_world: MakeWorld, loop: str) -> None:
    """Fifty clients announce 100 MB each and send a little, before and after a large frame that did
    arrive.
    """

    async def work(server: Server) -> None:
        before = resident_bytes()
        clients = [await server.connect() for _ in range(50)]
        for number, client in enumerate(clients):
            if number % 2:
                client.send(produce(1, bytes(200 * KIBIBYTE)))
                await client.answer()
            client.send((104_857_600).to_bytes(4) + bytes(1000))
        await asyncio.sleep(0.05)
        other = await server.connect()
        other.send(init(3))
        assert decode_response(22, 4, await other.answer()) == (
            3,
            InitProducerIdResponse(producer_id=3),
        )
        assert resident_bytes() - before < 40 * MEBIBYTE
        for client in clients:
            client.writer.transport.abort()

    run(loop, make_world(), work)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


@pytest.mark.parametrize("loop", LOOPS)
def test_throttled_new_connection_may_send_large_frames(make_world: MakeWorld, loop: str) -> None:
    """uvloop loses a pause that was requested in connection_made, and stops working if it gets an
    empty buffer.
    """
    frame = produce(1, bytes(300 * KIBIBYTE))

    async def work(server: Server) -> None:
        first = await server.connect()
        first.send(init(1))
        await first.answer()
        held = await server.connect()
        for number in range(2, 40):
            held.send(produce(number, bytes(300 * KIBIBYTE)))
        await asyncio.sleep(0.1)
        assert held.writer.transport.get_write_buffer_size() > 20 * len(frame), (
            "nothing more is read from a waiting client than what arrived at once"
        )
        first.writer.close()
        for number in range(2, 40):
            assert (await held.answer()).startswith(number.to_bytes(4))

    run(loop, make_world(), work, settings={"max.connections": "1"})


def test_bytes_without_buffer_space_close_the_connection() -> None:
    """The owner does not read then; otherwise an empty buffer would end the node."""
    surplus: list[None] = []
    frame = (200 * KIBIBYTE).to_bytes(4) + bytes(200 * KIBIBYTE)
    large = LargeFrames(
        Owner(),
        on_received=lambda: None,
        on_frames=lambda buffer, position, end: None,
        on_surplus=lambda: surplus.append(None),
        frame_bytes_max=1 << 30,
        begun=b"",
        frame_bytes=len(frame),
    )
    large.get_buffer(-1)[:] = frame
    large.buffer_updated(len(frame))
    assert len(large.get_buffer(-1)) > 0 and not surplus
    large.buffer_updated(10)
    assert len(surplus) == 1


class Owner(asyncio.Protocol):
    """A connection that serves every frame immediately and has received nothing else."""


def test_memory_of_a_very_large_frame_is_freed_immediately() -> None:
    """Otherwise each connection that sent one would keep it until it closes."""
    taken: list[int] = []

    def serve(buffer: object, position: int, end: int) -> None:
        taken.append(end - position)
        large.keep(end, end)

    frame = (32 * MEBIBYTE).to_bytes(4) + b"x" * 32 * MEBIBYTE
    before = resident_bytes()
    large = LargeFrames(
        Owner(),
        on_received=lambda: None,
        on_frames=serve,
        on_surplus=lambda: None,
        frame_bytes_max=1 << 30,
        begun=frame[:100],
        frame_bytes=len(frame),
    )
    room = large.get_buffer(-1)
    room[:] = frame[100:]
    size = len(room)
    del room
    large.buffer_updated(size)
    assert taken == [len(frame)] and len(frame) > KEPT_BYTES_MAX
    assert resident_bytes() - before < 8 * MEBIBYTE


def test_frames_of_one_size_reuse_one_buffer() -> None:
    """The next frame is expected to be as large as the last one: no allocation, no copy."""
    served: list[int] = []

    def serve(buffer: object, position: int, end: int) -> None:
        served.append(position)
        large.keep(end, end)

    frame = (MEBIBYTE).to_bytes(4) + bytes(MEBIBYTE)
    large = LargeFrames(
        Owner(),
        on_received=lambda: None,
        on_frames=serve,
        on_surplus=lambda: None,
        frame_bytes_max=1 << 30,
        begun=b"",
        frame_bytes=len(frame),
    )
    tracemalloc.start()
    for _ in range(20):
        sent = 0
        while sent < len(frame):
            room = large.get_buffer(-1)[: 300 * KIBIBYTE]
            room[:] = frame[sent : sent + len(room)]
            sent += len(room)
            size = len(room)
            del room
            large.buffer_updated(size)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert served == [0] * 20 and peak < 400 * KIBIBYTE


def test_simulated_broker_handles_large_batches_deterministically() -> None:
    """Bytes that arrive in one piece in virtual time fill the connection's buffer, and the rest
    follows.
    """

    async def work(client: BrokerClient) -> list[bytes]:
        await client.create_topic("t")
        sent = [
            batch(value=bytes([number]) * size)
            for number, size in enumerate(
                (300 * KIBIBYTE, 10, 900 * KIBIBYTE, 100, 200, 150 * KIBIBYTE)
            )
        ]
        answers = await asyncio.gather(*(client.produce(each) for each in sent))
        assert [answer.base_offset for answer in answers] == list(range(len(sent)))
        return [
            bytes(records or b"")
            for offset in range(len(sent))
            for records in [(await client.fetch(offset, max_bytes=1)).records]
        ]

    result = []
    for _ in range(2):
        with running_cluster(seed=5) as cluster:
            fetched = cluster.run(work)
            result.append((fetched, cluster.events))
    assert [len(each) // KIBIBYTE for each in result[0][0]] == [300, 0, 900, 0, 0, 150]
    assert result[0] == result[1]

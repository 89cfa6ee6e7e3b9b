"""Slices of files reach the client unchanged and in order with other responses, whatever happens to
file, client and node (FileRecords).
"""

import asyncio
import os
import socket
import struct
from pathlib import Path
from random import Random
from typing import cast

import pytest

from kraftsim.partitions import log_reading
from kraftsim.server import connection
from kraftsim.server.call import Answer, Call, Deferred, Encoded
from kraftsim.world.interface import File
from protocol.messages.k01_fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from protocol.requests import decode_response, request_chunks
from tests.node.conftest import MakeWorld, WatchedWorld, data_batch
from tests.node.stub_node import LOOPS, Client, Server, StubNode, init, produce, run
from tests.node.test_log import SMALL, append, opened

MEBIBYTE = 1 << 20
VERSION = 12


class Shelf:
    """A file of random bytes; Fetch number n gets the prepared range."""

    def __init__(self, world: WatchedWorld, size_bytes: int) -> None:
        self.file: File = world.disk.open("shelf/file")
        self.content = Random(1).randbytes(size_bytes)
        self.file.append([self.content])
        self.stretches: list[tuple[int, int]] = []

    def serve(self, call: Call) -> Answer | Deferred:
        """Answer with a slice."""
        records = self.file.slice(*self.stretches[call.correlation_id])
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic="t", partitions=[PartitionData(records=cast(memoryview, records))]
                )
            ]
        )


def fetch(correlation_id: int) -> bytes:
    """Build a Fetch request."""
    return b"".join(request_chunks(1, VERSION, correlation_id, "client", FetchRequest()))


async def fetched(client: Client) -> bytes:
    """Read a response and return its records."""
    _, answer = decode_response(1, VERSION, await client.answer())
    assert isinstance(answer, FetchResponse)
    return bytes(answer.responses[0].partitions[0].records or b"")


def serving(
    world: WatchedWorld, size_bytes: int, *stretches: tuple[int, int]
) -> tuple[Shelf, StubNode]:
    shelf = Shelf(world, size_bytes)
    shelf.stretches = list(stretches)
    return shelf, StubNode(on_fetch=shelf.serve)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("is_slow", [False, True])
def test_slices_and_other_responses_are_in_request_order(
    make_world: MakeWorld, loop: str, is_slow: bool
) -> None:
    """Also for a client that reads slowly: nothing is written past a slice that is being sent."""
    world = make_world()
    rng = Random(2)
    stretches = [
        (rng.randrange(MEBIBYTE), rng.choice((1, 70_000, MEBIBYTE, 9 * MEBIBYTE)))
        for _ in range(12)
    ]
    shelf, stub_node = serving(world, 10 * MEBIBYTE, *stretches)

    async def work(server: Server) -> None:
        client = await server.connect()
        client.send(*(fetch(number) + init(number) for number in range(len(stretches))))
        for number, (position, size) in enumerate(stretches):
            if is_slow:
                await asyncio.sleep(0.02)
            assert await fetched(client) == shelf.content[position : position + size]
            assert (await client.answer())[:4] == number.to_bytes(4)

    run(loop, world, work, stub_node)


@pytest.mark.parametrize("loop", LOOPS)
def test_small_slices_among_small_responses(make_world: MakeWorld, loop: str) -> None:
    """They are otherwise written in one piece."""
    world = make_world()
    shelf, stub_node = serving(world, MEBIBYTE, *[(number, number) for number in range(1, 13)])

    async def work(server: Server) -> None:
        client = await server.connect()
        client.send(*(init(number) + fetch(number) + init(number) for number in range(12)))
        for number in range(12):
            assert (await client.answer())[:4] == number.to_bytes(4)
            assert await fetched(client) == shelf.content[number + 1 : 2 * number + 2]
            assert (await client.answer())[:4] == number.to_bytes(4)

    run(loop, world, work, stub_node)


@pytest.mark.parametrize("loop", LOOPS)
def test_slice_waits_for_pending_transport_writes(make_world: MakeWorld, loop: str) -> None:
    """Responses of all sizes for a slow client: sometimes the transport is not drained when the
    next response is a slice.
    """
    world = make_world()
    shelf, stub_node = serving(world, MEBIBYTE, *[(number, 300_000) for number in range(100)])
    stub_node.on_produce = lambda call: Encoded(bytes([call.correlation_id]) * 300_000)

    async def work(server: Server) -> None:
        client = await server.connect(kept_bytes=20_000)
        client.send(*(produce(number, b"") + fetch(number) for number in range(100)))
        await asyncio.sleep(0.2)  # now all queues are full
        for number in range(100):
            assert await client.answer() == number.to_bytes(4) + bytes([number]) * 300_000
            assert await fetched(client) == shelf.content[number : number + 300_000]

    run(loop, world, work, stub_node)


@pytest.mark.parametrize("loop", LOOPS)
def test_response_completed_during_a_slice_is_sent_after_it(
    make_world: MakeWorld, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request behind the slice was served in the same turn, and its response deferred."""
    monkeypatch.setattr(connection, "UNWRITTEN_BYTES_MAX", 1 << 40)
    world = make_world()
    shelf, stub_node = serving(world, 24 * MEBIBYTE, (0, 24 * MEBIBYTE))
    later = Deferred()
    stub_node.on_produce = lambda call: later

    async def work(server: Server) -> None:
        client = await server.connect()
        client.pause_reading()
        client.send(fetch(0), produce(1, b""), init(2))
        await asyncio.sleep(0.05)
        later.complete(Encoded(b"behind"))
        await asyncio.sleep(0.05)
        client.resume_reading()
        assert await fetched(client) == shelf.content
        assert await client.answer() == b"\0\0\0\1behind"
        assert (await client.answer())[:4] == b"\0\0\0\2"

    run(loop, world, work, stub_node)


@pytest.mark.parametrize("loop", LOOPS)
def test_client_that_does_not_read_gets_only_one_slice(make_world: MakeWorld, loop: str) -> None:
    """The requested data stays in the file: it costs neither this process nor other clients
    anything.
    """
    world = make_world()
    shelf, stub_node = serving(world, 32 * MEBIBYTE, *[(0, 32 * MEBIBYTE)] * 50)

    async def work(server: Server) -> None:
        client = await server.connect()
        client.pause_reading()
        client.send(*(fetch(number) for number in range(50)))
        await asyncio.sleep(0.1)
        other = await server.connect()
        other.send(init(7))
        assert (await other.answer())[:4] == (7).to_bytes(4)
        assert stub_node.served == 2
        client.resume_reading()
        for _ in range(3):
            assert await fetched(client) == shelf.content

    run(loop, world, work, stub_node)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("fate", ["truncated and rewritten", "deleted", "closed", "grown"])
def test_changes_of_the_file_do_not_change_what_is_sent(
    make_world: MakeWorld, tmp_path: Path, loop: str, fate: str
) -> None:
    """The slice is being sent, partly in the socket's queue, when its bytes in the file are
    overwritten.
    """
    world = make_world()
    size = 24 * MEBIBYTE + 1234
    shelf, stub_node = serving(world, size, (5, size - 5), (5, size - 5))

    async def work(server: Server) -> None:
        client = await server.connect()
        client.pause_reading()
        client.send(fetch(0))
        await asyncio.sleep(0.05)
        if fate == "truncated and rewritten":
            shelf.file.truncate(1000)
            shelf.file.append([b"\xee" * size])
            await shelf.file.flush()
            assert world.disk.read("shelf/file") == shelf.content[:1000] + b"\xee" * size
            assert shelf.file.size_bytes == size + 1000 and world.disk.list("shelf") == ["file"]
        elif fate == "deleted":
            shelf.file.close()
            world.disk.remove("shelf/file")
        elif fate == "closed":
            shelf.file.close()
        else:
            shelf.file.append([b"\xee" * 5000])
        client.resume_reading()
        assert await fetched(client) == shelf.content[5:]

    run(loop, world, work, stub_node)


@pytest.mark.parametrize("loop", LOOPS)
def test_file_truncated_by_another_process_ends_the_connection(
    make_world: MakeWorld, tmp_path: Path, loop: str
) -> None:
    """The size was already sent: nothing else can be sent on this connection.

    The node continues.
    """
    world = make_world()
    _, stub_node = serving(world, 24 * MEBIBYTE, (0, 24 * MEBIBYTE))

    async def work(server: Server) -> None:
        client = await server.connect()
        client.pause_reading()
        client.send(fetch(0))
        await asyncio.sleep(0.05)
        os.truncate(tmp_path / "data" / "shelf" / "file", 100)
        client.resume_reading()
        assert len(await client.rest()) < 24 * MEBIBYTE
        assert "another process truncated the file" in await server.closed_because()
        other = await server.connect()
        other.send(init(7))
        assert (await other.answer())[:4] == (7).to_bytes(4)

    run(loop, world, work, stub_node)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("way", ["reset", "idle", "half-closed", "stopping"])
def test_connection_may_end_during_a_slice(make_world: MakeWorld, loop: str, way: str) -> None:
    """A client that disconnects, one that stops reading, one that half-closes, and a node that
    stops: no descriptor leaks.
    """
    world = make_world()
    shelf, stub_node = serving(world, 24 * MEBIBYTE, (0, 24 * MEBIBYTE))
    before = open_descriptors()

    async def work(server: Server) -> None:
        client = await server.connect()
        client.pause_reading()
        client.send(fetch(0))
        await asyncio.sleep(0.05)
        if way == "reset":
            client.writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            client.writer.transport.abort()
            assert await server.closed_because() == "peer"
        elif way == "idle":
            assert await server.closed_because() == "idle"
            client.writer.transport.abort()
        else:
            if way == "half-closed":
                client.writer.write_eof()
            else:
                await server.listeners.close()
            client.resume_reading()
            assert await fetched(client) == shelf.content
            assert await client.rest() == b""
            assert await server.closed_because() == ("peer" if way == "half-closed" else "stopping")

    run(
        loop,
        world,
        work,
        stub_node,
        settings={"connections.max.idle.ms": "200"} if way == "idle" else {},
    )
    assert open_descriptors() <= before


def open_descriptors() -> int:
    """Return the number of open descriptors of this process."""
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("slice_bytes_min", [1, 300])
def test_slice_of_a_log_equals_a_read(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, slice_bytes_min: int
) -> None:
    """Whole batches of odd sizes, across segments, up to any limit and end, with and without an
    oversized first batch. Small ranges are read.
    """
    monkeypatch.setattr(log_reading, "SLICE_BYTES_MIN", slice_bytes_min)
    world = make_world()
    log, _, _ = opened(world, SMALL)
    rng = Random(4)
    for _ in range(60):
        append(
            log,
            data_batch(
                rng.randint(1, 4),
                value=bytes(rng.choice((1, 10, 100, 400))),
                first=log.log_end_offset,
            ),
        )
    assert len([name for name in world.disk.list("t-0") if name.endswith(".log")]) > 5
    found = 0
    for _ in range(3000):
        offset, end_offset = (
            rng.randrange(log.log_end_offset + 2),
            rng.randrange(log.log_end_offset + 2),
        )
        max_bytes, at_least_one = (
            rng.choice((0, 1, 61, 100, 200, 400, 700, 1 << 20)),
            rng.random() < 0.5,
        )
        expected = (
            bytes(log.read(offset, max_bytes, end_offset, at_least_one=at_least_one))
            if end_offset > offset
            else b""
        )
        given = (
            log.slice(offset, max_bytes, end_offset, at_least_one=at_least_one)
            if end_offset > offset
            else b""
        )
        is_read = isinstance(given, bytes | bytearray | memoryview)
        assert (
            bytes(given) if isinstance(given, bytes | bytearray | memoryview) else given.read()
        ) == expected
        assert is_read or len(given) >= slice_bytes_min
        found += not is_read
    assert found > 50

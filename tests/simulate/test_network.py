"""The simulated network: ordered streams under failing connects, partitions, resets and host
failures.
"""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Iterator
from random import Random

import pytest

from kraftsim.world.simulated import (
    NetworkSettings,
    Simulation,
    SimulationEscape,
    SimulationStopped,
)
from kraftsim.world.simulated.server import SimulatedSocket
from tests.simulate.streams import PORT, Pair


@pytest.fixture
def sim() -> Iterator[Simulation]:
    with Simulation(5) as simulation:
        yield simulation


def test_asyncio_streams_echo_by_host_name(sim: Simulation) -> None:
    sim.add_host("broker-1"), sim.add_host("client-1")

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(100):
            writer.write(data.upper())
            await writer.drain()
        writer.close()

    async def serve() -> None:
        await asyncio.start_server(echo, "broker-1", PORT)

    async def dial() -> tuple[bytes, object]:
        reader, writer = await asyncio.open_connection("broker-1", PORT)
        writer.write(b"hello")
        writer.write_eof()
        data = await reader.read()
        writer.close()
        await writer.wait_closed()
        return data, writer.get_extra_info("peername")

    sim.run_until(sim.spawn("broker-1", serve()))
    data, peer = sim.run_until(sim.spawn("client-1", dial()))
    assert data == b"HELLO" and peer == (sim.host("broker-1").address, PORT)
    assert sim.network.connections == {}, "closed connections are discarded"


def test_both_ends_agree_on_their_names(sim: Simulation) -> None:
    pair = Pair(sim)
    for name, other in (("sockname", "peername"), ("peername", "sockname")):
        assert pair.client.transport.get_extra_info(name) == pair.server.transport.get_extra_info(
            other
        )
    simulated_socket = pair.client.transport.get_extra_info("socket")
    assert isinstance(simulated_socket, SimulatedSocket) and simulated_socket.getpeername() == (
        pair.b.address,
        PORT,
    )


def test_localhost_is_the_own_host(sim: Simulation) -> None:
    pair = Pair(sim)
    with pytest.raises(ConnectionRefusedError):
        pair.connect("127.0.0.1")
    sockname = pair.connect("127.0.0.1", host="b").transport.get_extra_info("sockname")
    assert isinstance(sockname, tuple) and sockname[0] == "127.0.0.1"
    addresses = sim.run_until(sim.loop.getaddrinfo("a", PORT))
    assert addresses == [
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (pair.a.address, PORT))
    ]


def test_bytes_arrive_in_order_in_other_chunks_than_written() -> None:
    with Simulation(3, network=NetworkSettings(torn_writes=0.5)) as sim:
        pair = Pair(sim)
        written = []
        for i in range(300):
            written.append(b"%d;" % i)
            pair.client.transport.write(written[-1])
            if i % 10 == 0:
                sim.run_for(0.0005)
        sim.run_for(1)
        assert pair.server.received == b"".join(written)
        assert any(not chunk.endswith(b";") for chunk in pair.server.chunks), "some writes are torn"
        assert any(chunk.count(b";") > 1 for chunk in pair.server.chunks), "some arrive together"


@pytest.mark.parametrize("seed", range(40))
def test_streams_stay_intact_under_partitions_and_pauses(seed: int) -> None:
    """Writes, one-way partitions, healing and pauses in any order: the received bytes are always a
    prefix of the sent ones, and in the end all of them.
    """
    draw = Random(seed)
    settings = NetworkSettings(
        torn_writes=0.3, retransmission_limit_ns=10**12, read_bytes=(0, 1, 7, 100)[seed % 4]
    )
    with Simulation(seed, network=settings) as sim:
        pair = Pair(sim)
        ends, sent = (pair.client, pair.server), [b"", b""]
        blocks: list[tuple[tuple[str, str], Callable[[str], None]]] = []
        for step in range(60):
            side = draw.randrange(2)
            match draw.choices(
                ("write", "block", "unblock", "pause", "resume"), (60, 15, 15, 4, 6)
            )[0]:
                case "write":
                    data = b"%d," % step * draw.randrange(1, 5)
                    ends[side].transport.write(data)
                    sent[side] += data
                case "block":
                    effects: list[str] = []
                    blocks.append((("a", "b") if side else ("b", "a"), effects.append))
                    sim.network.block(*blocks[-1][0], blocks[-1][1])
                case "unblock" if blocks:
                    link, record_effect = blocks.pop(draw.randrange(len(blocks)))
                    sim.network.unblock(*link, record_effect)
                case "pause":
                    ends[side].transport.pause_reading()
                case "resume":
                    ends[side].transport.resume_reading()
            sim.run_for(draw.choice((0, 1e-4, 3e-4, 1e-3, 0.5)))
            assert sent[0].startswith(pair.server.received) and sent[1].startswith(
                pair.client.received
            )
        for link, record_effect in blocks:
            sim.network.unblock(*link, record_effect)
        for end in ends:
            end.transport.resume_reading()
        sim.run_for(5)
        assert (pair.server.received, pair.client.received) == tuple(sent)
        assert [end.transport.get_write_buffer_size() for end in ends] == [0, 0]


def test_read_returns_buffered_bytes_regardless_of_write_boundaries() -> None:
    """Unread writes become one stream in the kernel; a read takes as much as it has space for, and
    end of file follows.
    """
    with Simulation(5, network=NetworkSettings(torn_writes=0, jitter_ns=0, read_bytes=10)) as sim:
        pair = Pair(sim)
        pair.client.transport.write(b"a" * 25)
        sim.run_for(1)
        assert [len(chunk) for chunk in pair.server.chunks] == [10, 10, 5]
        pair.server.transport.pause_reading()
        for _ in range(6):
            pair.client.transport.write(b"bcde")
            sim.run_for(0.1)
        pair.client.transport.write_eof()
        sim.run_for(1)
        assert len(pair.server.chunks) == 3 and pair.client.transport.get_write_buffer_size() == 24
        pair.server.transport.resume_reading()
        sim.run_for(1)
        assert pair.server.chunks[3:] == [b"bcdebcdebc", b"debcdebcde", b"bcde"]
        assert (
            pair.server.callbacks[-2:] == [("eof", 2), ("closed", 2)]
            and pair.client.transport.get_write_buffer_size() == 0
        )


def test_writer_is_paused_until_the_reader_reads(sim: Simulation) -> None:
    pair = Pair(sim)
    pair.server.transport.pause_reading()
    pair.client.transport.write(bytes(100_000))
    sim.run_for(5)
    assert pair.client.callbacks[-1][0] == "pause" and pair.server.received == b""
    assert pair.client.transport.get_write_buffer_size() == 100_000
    pair.server.transport.resume_reading()
    sim.run_for(5)
    assert pair.client.callbacks[-1] == ("resume", 5) and len(pair.server.received) == 100_000


def test_half_closed_connection_still_answers(sim: Simulation) -> None:
    pair = Pair(sim, reply=True, keep_open=True)
    pair.client.transport.write(b"x")
    pair.client.transport.write_eof()
    sim.run_for(1)
    assert pair.server.callbacks[-1][0] == "eof" and pair.client.received == b"x"
    pair.server.transport.close()
    sim.run_for(1)
    assert [what for what, _ in pair.client.callbacks] == ["made", "eof", "closed"]


def test_write_to_a_closed_end_returns_a_reset(sim: Simulation) -> None:
    pair = Pair(sim, keep_open=True)
    pair.server.transport.close()
    pair.client.keep_open = True
    sim.run_for(1)
    assert [what for what, _ in pair.client.callbacks] == ["made", "eof"]
    pair.client.transport.write(b"x")
    sim.run_for(1)
    assert pair.client.callbacks[-1][0] == "ConnectionResetError"


def test_connects_fail_as_they_do_on_real_hosts(sim: Simulation) -> None:
    pair = Pair(sim)
    with pytest.raises(ConnectionRefusedError):
        pair.connect(port=1)
    with pytest.raises(socket.gaierror):
        pair.connect("nowhere")
    pair.listener.close()
    with pytest.raises(ConnectionRefusedError):
        pair.connect()
    with pytest.raises(OSError) as taken:
        pair.listen()
        pair.listen()
    assert taken.value.errno == errno.EADDRINUSE
    sim.kill("b")
    with pytest.raises(ConnectionRefusedError):
        pair.connect()
    sim.restart("b")
    sim.kill("b", power_loss=True)
    started = sim.now_ns
    with pytest.raises(TimeoutError):
        pair.connect()
    assert sim.now_ns - started == pytest.approx(30 * 10**9, abs=2 * 10**7)


def test_partition_delays_bytes_which_arrive_in_order_when_it_heals(sim: Simulation) -> None:
    pair = Pair(sim)
    effects: list[str] = []
    pair.client.transport.write(b"1")
    sim.network.block("a", "b", effects.append)
    for i in range(2, 6):
        pair.client.transport.write(b"%d" % i)
        sim.run_for(1)
    pair.server.transport.write(b"the other direction works")
    sim.run_for(1)
    assert (
        pair.server.received == b""
        and pair.client.received == b"the other direction works"
        and effects
    )
    sim.network.unblock("a", "b", effects.append)
    pair.client.transport.write(b"6")
    sim.run_for(1)
    assert pair.server.received == b"123456"


def test_two_partitions_of_one_link_end_one_after_the_other(sim: Simulation) -> None:
    pair = Pair(sim)
    first, second = (lambda effect: None), (lambda effect: None)
    for record_effect in (first, second):
        sim.network.block("a", "b", record_effect)
    pair.client.transport.write(b"x")
    sim.network.unblock("a", "b", first)
    sim.run_for(5)
    assert pair.server.received == b""
    sim.network.unblock("a", "b", second)
    sim.run_for(5)
    assert pair.server.received == b"x"


def test_connection_without_acknowledgements_for_too_long_fails(sim: Simulation) -> None:
    pair = Pair(sim)
    sim.network.block("a", "b", lambda effect: None)
    pair.client.transport.write(b"x")
    sim.run_for(100)
    assert pair.client.callbacks[-1] == ("TimeoutError", 60)
    assert pair.server.callbacks == [("made", 0)], "a silent sender detects nothing"


def test_connect_waits_for_a_partition_to_end(sim: Simulation) -> None:
    pair = Pair(sim)
    effects: list[str] = []
    sim.network.block("b", "a", effects.append)
    sim.triggers.at(
        5 * 10**9, lambda trigger_context: sim.network.unblock("b", "a", effects.append)
    )
    pair.connect()
    assert 5 * 10**9 < sim.now_ns < 10 * 10**9 and effects


def test_connection_cut_loses_bytes_in_flight_and_resets_both_ends(sim: Simulation) -> None:
    pair = Pair(sim)
    pair.client.transport.write(b"x")
    assert sim.network.cut("b", "a") == 1
    sim.run_for(1)
    assert pair.server.received == b""
    assert pair.client.callbacks[-1] == pair.server.callbacks[-1] == ("ConnectionResetError", 0)


@pytest.mark.parametrize("allowed", [0, 1, 5, 10, 11, 15])
def test_connection_cut_after_k_bytes_delivers_exactly_k(sim: Simulation, allowed: int) -> None:
    pair = Pair(sim, reply=True)
    pair.client.transport.cut_after(allowed)
    pair.client.transport.write(b"0123456789")
    pair.client.transport.write(b"abcdefghij")
    sim.run_for(1)
    assert pair.server.received == b"0123456789abcdefghij"[:allowed]
    assert pair.client.callbacks[-1][0] == pair.server.callbacks[-1][0] == "ConnectionResetError"


def test_killed_process_resets_its_connections_after_its_last_bytes(sim: Simulation) -> None:
    pair = Pair(sim)
    pair.server.transport.write(b"last words")
    sim.kill("b")
    sim.run_for(1)
    assert pair.client.received == b"last words"
    assert pair.client.callbacks[-1] == ("ConnectionResetError", 0)
    assert pair.server.callbacks == [("made", 0)], "a dead process receives nothing"


def test_host_without_power_is_silent_until_it_is_back(sim: Simulation) -> None:
    pair = Pair(sim)
    sim.kill("b", power_loss=True)
    sim.run_for(10)
    assert pair.client.callbacks == [("made", 0)], "an idle peer is not notified"
    pair.client.transport.write(b"x")
    sim.run_for(10)
    assert pair.client.callbacks == [("made", 0)]
    sim.restart("b")
    sim.run_for(1)
    assert pair.client.callbacks[-1] == ("ConnectionResetError", 20)


def test_host_that_stays_without_power_times_out(sim: Simulation) -> None:
    pair = Pair(sim)
    pair.client.transport.write(b"under way")
    sim.kill("b", power_loss=True)
    sim.run_for(100)
    assert pair.client.callbacks[-1] == ("TimeoutError", 60)


def test_idle_connection_to_a_restarted_host_is_reset_at_the_first_write(sim: Simulation) -> None:
    pair = Pair(sim)
    sim.kill("b", power_loss=True)
    sim.restart("b")
    sim.run_for(10)
    assert pair.client.callbacks == [("made", 0)]
    pair.client.transport.write(b"x")
    sim.run_for(1)
    assert pair.client.callbacks[-1][0] == "ConnectionResetError"


def test_reset_lost_in_a_partition_arrives_when_it_heals(sim: Simulation) -> None:
    pair = Pair(sim)
    effects: list[str] = []
    record_effect = effects.append
    sim.network.block("b", "a", record_effect)
    sim.kill("b")
    sim.run_for(10)
    assert pair.client.callbacks == [("made", 0)]
    sim.network.unblock("b", "a", record_effect)
    sim.run_for(1)
    assert pair.client.callbacks[-1][0] == "ConnectionResetError"


def test_slow_link_is_slow_only_in_its_direction(sim: Simulation) -> None:
    pair = Pair(sim)
    sizes = []

    def delay(size_bytes: int) -> int:
        sizes.append(size_bytes)
        return 2_000_000_000

    sim.network.link("a", "b").slow(delay)
    pair.server.transport.write(b"quick")
    assert sizes == []
    pair.client.transport.write(b"slow")
    sim.run_for(1)
    assert pair.client.received == b"quick" and pair.server.received == b"" and sizes == [4]
    sim.run_for(2)
    assert pair.server.received == b"slow"


def test_failing_protocol_ends_the_run_or_if_tolerated_its_connection(
    sim: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Pair(sim)

    def broken(data: bytes) -> None:
        raise ValueError("not a frame")

    pair.b.is_tolerant = True
    monkeypatch.setattr(pair.server, "data_received", broken)
    pair.client.transport.write(b"x")
    sim.run_for(1)
    assert pair.client.callbacks[-1][0] == "ConnectionResetError"
    assert [(trouble.host, str(trouble.error)) for trouble in sim.troubles] == [
        ("b", "not a frame")
    ]
    pair.b.is_tolerant = False
    client = pair.connect()
    monkeypatch.setattr(pair.servers[-1], "data_received", broken)
    client.transport.write(b"x")
    with pytest.raises(SimulationStopped, match="b: ValueError: not a frame"):
        sim.run_for(1)


@pytest.mark.parametrize(
    "attempt",
    [
        lambda loop: loop.create_connection(asyncio.Protocol, "b", PORT, ssl=True),
        lambda loop: loop.create_unix_connection(asyncio.Protocol, "/tmp/x"),
        lambda loop: loop.create_datagram_endpoint(asyncio.DatagramProtocol),
        lambda loop: loop.sock_recv(None, 1),
        lambda loop: loop.add_reader(0, print),
        lambda loop: loop.subprocess_exec(asyncio.SubprocessProtocol, "true"),
    ],
)
def test_error_for_an_unsimulated_call_names_the_caller(
    sim: Simulation, attempt: Callable[[asyncio.AbstractEventLoop], Awaitable[object] | None]
) -> None:
    async def try_it() -> None:
        result = attempt(asyncio.get_running_loop())
        assert result is not None
        await result

    with pytest.raises(SimulationEscape, match=r"test_network\.py:\d+"):
        sim.run_until(try_it())

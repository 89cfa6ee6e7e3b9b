"""A tap sees each byte of a connection once, whatever protocol reads it, and the observer of a host
follows its processes.
"""

import asyncio

import pytest

from kraftsim.clients.events_transactions import TransactionEnded
from kraftsim.lab.application.observer import observe_clients
from kraftsim.world.simulated import NetworkSettings, Simulation
from kraftsim.world.simulated.host import ConnectionEnd
from kraftsim.world.simulated.transport import SimulatedTransport
from protocol.api_keys import ApiKey
from protocol.messages.k00_produce import (
    ACKS_ALL,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.requests import request_chunks
from tests.core.observed_frames import batch

PORT = 9092
SENT = bytes(range(256)) * 8


class RecordingTap:
    """Keeps what it sees."""

    def __init__(self) -> None:
        self.data_sent = b""
        self.data_received = b""

    def sent(self, data: bytes) -> None:
        self.data_sent += data

    def received(self, data: bytes) -> None:
        self.data_received += data


class Echo(asyncio.Protocol):
    """Sends back what it receives."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream"
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


class SmallBuffer(asyncio.BufferedProtocol):
    """Takes some bytes at a time, and pauses now and then with bytes left over."""

    def __init__(self) -> None:
        self.taken = b""
        self._buffer = bytearray(7)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream"
        self._transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.taken += self._buffer[:nbytes]
        if len(self.taken) % 5 == 0:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_later(0.01, self._transport.resume_reading)


async def listen() -> None:
    await asyncio.get_running_loop().create_server(Echo, "server", PORT)


@pytest.mark.parametrize("read_bytes", [0, 100])
def test_tap_sees_each_byte_once_though_a_protocol_leaves_some(read_bytes: int) -> None:
    """Bytes that a BufferedProtocol leaves are delivered a second time."""
    tap = RecordingTap()

    def attach(transport: ConnectionEnd) -> None:
        assert isinstance(transport, SimulatedTransport), "the only kind"
        transport.tap = tap

    with Simulation(3, network=NetworkSettings(torn_writes=0.5, read_bytes=read_bytes)) as sim:
        client = sim.add_host("client")
        client.on_connect.append(attach)
        sim.run_until(sim.spawn(sim.add_host("server"), listen()))

        async def talk() -> bytes:
            transport, protocol = await asyncio.get_running_loop().create_connection(
                SmallBuffer, "server", PORT
            )
            for start in range(0, len(SENT), 300):
                transport.write(SENT[start : start + 300])
                await asyncio.sleep(0.02)
            await asyncio.sleep(60)
            return protocol.taken

        assert sim.run_until(sim.spawn(client, talk()), limit_s=100) == SENT
    assert (tap.data_sent, tap.data_received) == (SENT, SENT)


def test_end_of_a_process_leaves_its_transactions_unknown() -> None:
    """A killed application never learns the outcome; its next process has other transactions."""
    with Simulation(1) as sim:
        host = sim.add_host("app")
        observe_clients(sim, host)
        observe_clients(sim, host)
        sim.run_until(sim.spawn(sim.add_host("server"), listen()))
        named = TopicProduceData(
            name="t",
            partition_data=[
                PartitionProduceData(
                    index=0, records=batch("k", producer=(1, 0), sequence=0, transactional=True)
                )
            ],
        )
        request = ProduceRequest(
            transactional_id="pay", acks=ACKS_ALL, timeout_ms=1, topic_data=[named]
        )

        async def send() -> None:
            _, writer = await asyncio.open_connection("server", PORT)
            writer.write(b"".join(request_chunks(ApiKey.PRODUCE, 9, 1, "c", request)))
            await asyncio.sleep(1)

        for _ in range(2):
            sim.run_until(sim.spawn(host, send()))
            sim.kill(host)
            sim.restart(host)
        ended = [
            (incarnation, event.transaction, event.outcome)
            for incarnation in (1, 2)
            for _, _, event in sim.log("app", incarnation).entries
            if isinstance(event, TransactionEnded)
        ]
    assert ended == [(1, "app/pay/1", "unknown"), (2, "app/pay#2/1", "unknown")]

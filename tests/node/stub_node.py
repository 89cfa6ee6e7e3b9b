"""A node that accepts batches and serves slices of a file, on any event loop: a harness for the
byte paths of a connection.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import uvloop

from kraftsim.server.api_offer import ApiOffer
from kraftsim.server.call import Answer, Call, Deferred, Encoded, Handler
from kraftsim.server.config import NodeConfig
from kraftsim.server.dispatch import Dispatcher
from kraftsim.server.events_connections import ConnectionClosed
from kraftsim.server.listeners import Listeners
from kraftsim.server.shell import NodeShell
from protocol.api_keys import ApiKey
from protocol.messages.k00_produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol.requests import request_chunks
from tests.node.conftest import WatchedWorld

T = TypeVar("T")
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
RELEASED = {ApiKey.PRODUCE: (3, 11), ApiKey.FETCH: (4, 16), ApiKey.INIT_PRODUCER_ID: (0, 5)}
PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "101@127.0.0.1:1",
}


@dataclass
class StubNode:
    """Each API does what its function here defines.

    Produce stores a copy of its records, and returns an arbitrary response.
    """

    on_produce: Callable[[Call], Answer | Deferred] | None = None
    on_fetch: Callable[[Call], Answer | Deferred] | None = None
    received: list[bytes] = field(default_factory=list)
    served: int = 0

    def serve(self, call: Call) -> Answer | Deferred:
        """Serve a request."""
        self.served += 1
        if isinstance(call.body, ProduceRequest):
            self.received += [
                bytes(data.records or b"")
                for topic in call.body.topic_data
                for data in topic.partition_data
            ]
            return Encoded(b"produced") if self.on_produce is None else self.on_produce(call)
        if isinstance(call.body, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=call.correlation_id)
        assert self.on_fetch is not None, "the test serves Fetch"
        return self.on_fetch(call)


HANDLERS: list[Handler[StubNode]] = [
    Handler(key=key, handle=lambda stub_node, call: stub_node.serve(call)) for key in RELEASED
]


@dataclass
class Server:
    """A listening node."""

    stub_node: StubNode
    listeners: Listeners
    world: WatchedWorld

    async def connect(self, kept_bytes: int = 1 << 24) -> "Client":
        """Open a connection; the client keeps reading until about this many bytes are
        unconsumed.
        """
        return Client(
            *await asyncio.open_connection(
                "127.0.0.1", self.listeners.bound["PLAINTEXT"].port, limit=kept_bytes
            )
        )

    def why_closed(self) -> list[str]:
        """Return why connections were closed so far."""
        return [
            event.reason
            for event in self.world.emitted_of(ConnectionClosed)
            if isinstance(event, ConnectionClosed)
        ]

    async def closed_because(self) -> str:
        """Wait for the first connection to be gone and return why."""
        async with asyncio.timeout(5):
            while not self.why_closed():
                await asyncio.sleep(0.005)
        return self.why_closed()[0]


@dataclass
class Client:
    """A client that can send anything."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, *frames: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(b"".join(frames))

    def pause_reading(self) -> None:
        """Take nothing more from the socket, as a client that hangs."""
        self.reader._transport.pause_reading()  # type: ignore[attr-defined]  # not in typeshed

    def resume_reading(self) -> None:
        """Read again."""
        self.reader._transport.resume_reading()  # type: ignore[attr-defined]  # not in typeshed

    async def answer(self, timeout_s: float = 5) -> bytes:
        """Read one response without its size."""
        async with asyncio.timeout(timeout_s):
            return await self.reader.readexactly(int.from_bytes(await self.reader.readexactly(4)))

    async def rest(self) -> bytes:
        """Read until the node closes the connection."""
        async with asyncio.timeout(5):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


def run(
    loop: str,
    world: WatchedWorld,
    work: Callable[[Server], Awaitable[T]],
    stub_node: StubNode | None = None,
    *,
    settings: Mapping[str, str] | None = None,
) -> T:
    """Run a test with a server on a kind of event loop."""

    async def main() -> T:
        mistakes: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: mistakes.append(context)
        )
        served = StubNode() if stub_node is None else stub_node
        config = NodeConfig.parse({**PROPERTIES, **(settings or {})})
        shell = NodeShell(world, config, lambda: listeners.abort())
        listeners = Listeners(shell)
        offer = ApiOffer(RELEASED, RELEASED, {})
        await listeners.open(config.listeners, Dispatcher(served, HANDLERS, offer))
        try:
            result = await work(Server(served, listeners, world))
        finally:
            await listeners.close()
        assert not mistakes and shell.failure is None, (mistakes, shell.failure)
        return result

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        return runner.run(main())


def records_of(call: Call) -> memoryview:
    """Return a view of the records in a Produce request of one batch."""
    assert isinstance(call.body, ProduceRequest)
    records = call.body.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    return records


def produce(correlation_id: int, records: bytes, version: int = 9) -> bytes:
    """Build a Produce request."""
    data = [
        TopicProduceData(
            name="topic", partition_data=[PartitionProduceData(index=0, records=records)]
        )
    ]
    return b"".join(
        request_chunks(
            0,
            version,
            correlation_id,
            "client",
            ProduceRequest(acks=-1, timeout_ms=1, topic_data=data),
        )
    )


def init(correlation_id: int, client_id: str | None = "client", version: int = 4) -> bytes:
    """Build an InitProducerId request."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    return b"".join(request_chunks(22, version, correlation_id, client_id, request))

"""The proxy's control socket on loopback: a line with the secret, then one JSON object a line.

Anything else ends the connection.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from kraftsim.cluster.directories import is_same_secret
from kraftsim.cluster.proxy.control_messages import (
    ANSWERED,
    GIVEN_UP,
    Answer,
    ControlEnvelope,
    Cut,
    Decide,
    EndRequestFault,
    Follow,
    FrameHeld,
    FrameReport,
    Halve,
    Impose,
    InjectRequestFault,
    Lift,
    LiftAll,
    ListRequestFaults,
    News,
    Order,
    RequestFaultHit,
    Unwatch,
)
from kraftsim.cluster.proxy.proxy import NotDone, Proxy
from kraftsim.lab.faults.field import Condition, Effect, Link, Watch
from kraftsim.lab.faults.rules_request_faults import RequestFault, RequestFaultStatus, RequestHit

LOOPBACK: Final = "127.0.0.1"
OnHeld = Callable[["Held"], None]
OnHit = Callable[[RequestHit], None]


class ProxyControlServer:
    """Listens on a free port, and passes requests of clients that know the secret to the proxy."""

    def __init__(self, proxy: Proxy, secret: str) -> None:
        self._proxy = proxy
        self._secret = secret
        self._writers: dict[asyncio.StreamWriter, None] = {}
        self._server: asyncio.Server | None = None

    async def open(self) -> int:
        """Listen; return the port."""
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        """Accept no more connections, and close those that are open."""
        assert self._server is not None, "it was opened"
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        while self._writers:
            await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def report(news: News) -> None:
            writer.write(msgspec.json.encode(news) + b"\n")

        self._writers[writer] = None
        try:
            if not is_same_secret((await reader.readline()).decode().strip(), self._secret):
                return
            while line := await reader.readline():
                envelope = msgspec.json.decode(line, type=ControlEnvelope)
                try:
                    report(self._proxy.carry_out(envelope.id, envelope.order, report))
                except NotDone as error:
                    report(Answer(id=envelope.id, trouble=str(error)))
        except (OSError, ValueError):  # ValueError: no valid request, or one without a line feed
            pass
        finally:
            self._proxy.forget(report)
            writer.close()
            del self._writers[writer]


class ProxyLost(ConnectionError):
    """The proxy has ended, or refused a request."""


class Held:
    """A frame that the proxy holds, seen by the client of the control socket.

    See `kraftsim.lab.faults.field.HeldFrame`.
    """

    def __init__(self, door: "ProxyClient", news: FrameHeld) -> None:
        self.api_key = news.api_key
        self.is_response = news.is_response
        self.client = news.client
        self.server = news.server
        self.size_bytes = news.size_bytes
        self.connection = news.connection
        self.correlation_id = news.correlation_id
        self._door = door
        self._hold = news.hold
        self._is_decided = False
        loop = asyncio.get_running_loop()
        self._reports: dict[str, asyncio.Future[int]] = {
            GIVEN_UP: loop.create_future(),
            ANSWERED: loop.create_future(),
        }

    @property
    def sender(self) -> str:
        """The sender of the frame."""
        return self.server if self.is_response else self.client

    async def cut(self, after_bytes: int) -> None:
        """Forward so many bytes of it (its size field included), then reset the connection at both
        ends.
        """
        await self._decide("cut", after_bytes)

    async def swallow(self) -> None:
        """Drop it; the connection stays open."""
        await self._decide("swallow")

    async def delay(self, delay_ms: float) -> None:
        """Delay it and everything behind it."""
        self._is_decided = True
        await self._decide("delay", delay_ms)

    async def send(self) -> None:
        """Mark it as sent: it is only late."""
        await self._decide("send")

    async def repeat(self, after_ms: float) -> None:
        """Send a copy of a request on a new connection, so long after it has passed."""
        await self._decide("repeat", after_ms)

    async def given_up(self) -> bool:
        """Wait until its client closes the connection; return True."""
        await asyncio.shield(self._reports[GIVEN_UP])
        return True

    async def copy_answered(self) -> int:
        """Wait until a copy was answered; return the size of what was read of the answer."""
        return await asyncio.shield(self._reports[ANSWERED])

    def report(self, report: FrameReport) -> None:
        """Report what became of it; only the first call counts."""
        future = self._reports[report.what]
        if not future.done():
            future.set_result(report.size_bytes)

    async def let_pass(self) -> None:
        """Release it, with the decisions about it."""
        if not self._is_decided:
            self._is_decided = True
            await self._decide("pass")

    async def _decide(self, action: str, value: float = 0) -> None:
        await self._door.order(Decide(hold=self._hold, action=action, value=value))


class ProxyClient:
    """The client: `await ProxyClient.at(port, secret)`, then its methods, then `close`.

    It belongs to the event loop on which it was opened.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers: dict[int, asyncio.Future[Answer]] = {}
        self._watches: dict[int, OnHeld] = {}
        self._early: dict[int, FrameHeld] = {}
        self._held: dict[int, Held] = {}
        self._on_hits: dict[int, OnHit] = {}
        self._early_hits: dict[int, list[RequestHit]] = {}
        self._next_id = 1
        self._listening = asyncio.ensure_future(self._listen())

    @classmethod
    async def at(cls, port: int, secret: str) -> "ProxyClient":
        """Connect to a proxy. Raises OSError if none listens there."""
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
        writer.write(secret.encode() + b"\n")
        return cls(reader, writer)

    async def close(self) -> None:
        """Disconnect. Frames that are held pass, and watches are removed."""
        self._listening.cancel()
        self._writer.close()

    async def impose(self, links: Iterable[Link], condition: Condition) -> int:
        """Impose a condition on links; return its number."""
        return (await self.order(Impose(links=tuple(links), condition=condition))).number

    async def lift(self, number: int) -> Effect:
        """End a condition; return its effect."""
        return (await self.order(Lift(number=number))).effect

    async def lift_all(self, nodes: Iterable[str] = ()) -> int:
        """End all conditions, or those on links of some nodes; return how many ended."""
        return (await self.order(LiftAll(nodes=tuple(nodes)))).number

    async def cut(self, links: Iterable[Link], *, only_one: bool = False) -> Effect:
        """Reset the connections over links, or one of them chosen at random."""
        return (await self.order(Cut(links=tuple(links), only_one=only_one))).effect

    async def halve(self, links: Iterable[Link], *, believer: str, gone: str | None) -> int:
        """Make each connection over links half-open: one end is gone without the other knowing;
        return a number for `lift`.
        """
        return (await self.order(Halve(links=tuple(links), believer=believer, gone=gone))).number

    async def watch(self, watch: Watch, on_held: OnHeld) -> int:
        """Wait for a frame: `on_held` is called with it, and must make sure that it is released."""
        number = (await self.order(Follow(watch=watch))).number
        self._watches[number] = on_held
        early = self._early.pop(number, None)
        if early is not None:
            on_held(self._caught(early))
        return number

    async def unwatch(self, number: int) -> None:
        """Wait no more."""
        self._watches.pop(number, None)
        await self.order(Unwatch(number=number))

    async def inject(self, fault: RequestFault, on_hit: OnHit) -> int:
        """Add a fault of requests; `on_hit` is called for each that it takes effect on. Return its
        number.
        """
        number = (await self.order(InjectRequestFault(fault=fault))).number
        self._on_hits[number] = on_hit
        for hit in self._early_hits.pop(number, ()):
            on_hit(hit)
        return number

    async def end_fault(self, number: int) -> None:
        """End a fault of requests."""
        await self.order(EndRequestFault(number=number))
        self._on_hits.pop(number, None)
        self._early_hits.pop(number, None)

    async def request_faults(self) -> tuple[RequestFaultStatus, ...]:
        """Return all faults of requests and what became of them."""
        return (await self.order(ListRequestFaults())).faults

    async def order(self, order: Order) -> Answer:
        """Send a request and return the answer. Raises ProxyLost."""
        number = self._next_id
        self._next_id += 1
        if self._listening.done():
            raise ProxyLost("the proxy has ended")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self._writer.write(msgspec.json.encode(ControlEnvelope(id=number, order=order)) + b"\n")
        got = await answer
        if got.trouble is not None:
            raise ProxyLost(got.trouble)
        return got

    async def _listen(self) -> None:
        try:
            while line := await self._reader.readline():
                self._hear(msgspec.json.decode(line, type=News))
        except OSError:
            pass
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ProxyLost("the proxy has ended"))
            self._answers.clear()

    def _hear(self, news: News) -> None:
        if isinstance(news, FrameHeld):
            on_held = self._watches.pop(news.watch, None)
            if on_held is None:
                self._early[news.watch] = news
            else:
                on_held(self._caught(news))
        elif isinstance(news, FrameReport):
            self._held[news.hold].report(news)
        elif isinstance(news, RequestFaultHit):
            if news.number in self._on_hits:
                self._on_hits[news.number](news.hit)
            else:
                self._early_hits.setdefault(news.number, []).append(news.hit)
        elif (answer := self._answers.pop(news.id, None)) is not None and not answer.done():
            answer.set_result(news)

    def _caught(self, news: FrameHeld) -> Held:
        held = self._held[news.hold] = Held(self, news)
        return held

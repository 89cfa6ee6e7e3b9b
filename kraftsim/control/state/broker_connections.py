"""Connections to the brokers of a cluster for the requests of a snapshot: kept open, with short
time-outs.

A broker serves the requests of a connection one after the other. One that it forwards to the
controller has a connection of its own (a lane), so that an election holds up no other request.

A broker that does not answer is left alone for a while, so that a paused broker costs one time-out
now and then, and not one per snapshot.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from kraftsim.server.outbound import NoCommonVersion, PeerConnection
from kraftsim.server.security.login import LinkSecurity
from protocol.schema import Message

Address = tuple[str, int]
Answer = TypeVar("Answer", bound=Message)

CLIENT_ID: Final = "kraftsim-admin"
"""One of the names that faults of clients' requests leave alone."""
CONNECT_MS: Final = 1_000
ANSWER_MS: Final = 2_000
LEFT_ALONE_SECONDS: Final = 5.0
BROKER_LANE: Final = "broker"
CONTROLLER_LANE: Final = "controller"
"""For requests that a broker forwards."""
Way = tuple[Address, str]
"""An address and a lane."""


class BrokerSilent(OSError):
    """A broker did not answer; the message is the reason, without its name."""


class SnapshotConnections:
    """One connection per broker; `seconds` is the monotonic clock.

    `addresses` replaces, by node id, what the cluster advertises: for a reader that must not go
    through the listener of clients.
    """

    def __init__(
        self,
        bootstrap: Sequence[Address],
        seconds: Callable[[], float],
        *,
        security: LinkSecurity | None = None,
        addresses: Mapping[int, Address] | None = None,
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._seconds = seconds
        self._security = security
        self._own_addresses = dict(addresses or {})
        self._advertised: dict[int, Address] = {}
        self._open: dict[Way, PeerConnection] = {}
        self._failures: dict[Way, tuple[float, str]] = {}
        self._turns: dict[Way, asyncio.Lock] = {}
        self._first = 0

    def learn(self, brokers: Mapping[int, Address]) -> None:
        """Take the addresses that Metadata has; connections to other ones are closed."""
        self._advertised = {
            broker: self._own_addresses.get(broker, address) for broker, address in brokers.items()
        }
        known = {*self._advertised.values(), *self._bootstrap}
        for way in [each for each in self._open if each[0] not in known]:
            self._open.pop(way).close()
        for way in [each for each in self._failures if each[0] not in known]:
            del self._failures[way]

    @property
    def broker_ids(self) -> tuple[int, ...]:
        """The brokers of the last Metadata response."""
        return tuple(sorted(self._advertised))

    async def ask(self, broker: int, request: Message, answer: type[Answer]) -> Answer:
        """Send a request to a broker.

        Raises NoCommonVersion if the broker lacks the API, BrokerSilent for everything else.
        """
        address = self._advertised.get(broker)
        if address is None:
            raise BrokerSilent("it is not in the metadata")
        return await self._ask_at((address, BROKER_LANE), request, answer)

    async def ask_any(
        self, request: Message, answer: type[Answer], lane: str = BROKER_LANE
    ) -> Answer:
        """Send a request to the first broker that answers it: the one that answered last time
        before others. Raises as `ask` does.
        """
        addresses = list(dict.fromkeys([*self._advertised.values(), *self._bootstrap]))
        reasons: list[OSError] = []
        for turn in range(len(addresses)):
            place = (self._first + turn) % len(addresses)
            try:
                found = await self._ask_at((addresses[place], lane), request, answer)
            except OSError as error:
                reasons.append(error)
                continue
            self._first = place
            return found
        raise reasons[-1] if reasons else BrokerSilent("no address of a broker is known")

    async def connection(self, broker: int | None = None) -> PeerConnection:
        """Return an open connection to a broker, or to the first that accepts one."""
        if broker is not None and broker in self._advertised:
            return await self._connected((self._advertised[broker], BROKER_LANE))
        error: OSError = BrokerSilent("no address of a broker is known")
        for address in dict.fromkeys([*self._advertised.values(), *self._bootstrap]):
            try:
                return await self._connected((address, BROKER_LANE))
            except OSError as failure:
                error = failure
        raise error

    async def _ask_at(self, way: Way, request: Message, answer: type[Answer]) -> Answer:
        connection = await self._connected(way)
        try:
            found = await connection.request(request, timeout_ms=ANSWER_MS)
        except NoCommonVersion:
            raise
        except OSError as error:
            raise self._failed(way, error) from error
        assert isinstance(found, answer), "an answer has the class of its request"
        return found

    async def _connected(self, way: Way) -> PeerConnection:
        async with self._turns.setdefault(way, asyncio.Lock()):
            failed = self._failures.get(way)
            if failed is not None and self._seconds() < failed[0]:
                raise BrokerSilent(failed[1])
            known = self._open.get(way)
            if known is not None and known.is_open:
                return known
            connection = PeerConnection(
                *way[0], client_id=CLIENT_ID, request_timeout_ms=ANSWER_MS, security=self._security
            )
            try:
                await connection.connect(timeout_ms=CONNECT_MS)
            except OSError as error:
                raise self._failed(way, error) from error
            self._failures.pop(way, None)
            self._open[way] = connection
            return connection

    def _failed(self, way: Way, error: OSError) -> BrokerSilent:
        reason = str(error) or type(error).__name__
        self._failures[way] = (self._seconds() + LEFT_ALONE_SECONDS, reason)
        return BrokerSilent(reason)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._open.values():
            connection.close()
        self._open.clear()

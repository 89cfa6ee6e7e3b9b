"""Clients of the HTTP API for Python: `ControlClient` blocks, `AsyncControlClient` has coroutines.

    with ControlClient.of("runs/up") as control:      # or ControlClient(url, token)
        control.kill("broker-1")
        control.inject("EndTxn error=CONCURRENT_TRANSACTIONS times=3")
        for event in control.events(kinds=("LeaderElected",)):
            print(event.node, event.fields)

Both raise ControlRefused for what the server refuses, and httpx.HTTPError if it does not answer.
Needs the extra `http`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Generic, TypedDict, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from kraftsim.cluster.cluster_operations import ImposedCondition, NodeOutcome
from kraftsim.cluster.directories import RunDirectory, read_state
from kraftsim.control.access import Refused
from kraftsim.control.calls import (
    DiskFaultBody,
    HealBody,
    LinkBody,
    RequestFaultText,
    RestartBody,
    SlowBody,
    UpgradeBody,
)
from kraftsim.control.controlled import ControlledDescription
from kraftsim.control.routes import (
    V1,
    Ended,
    Healed,
    ImposedConditions,
    NodeOutcomes,
    Nodes,
    RequestFaultReport,
    RequestFaultReports,
)
from kraftsim.control.state.cluster_snapshot import ClusterSnapshot, NodeStatus
from kraftsim.lab.faults.field import Effect
from kraftsim.lab.faults.request_fault_text import request_fault_text
from kraftsim.lab.faults.rules_request_faults import RequestFault

T = TypeVar("T", bound=msgspec.Struct)
ANSWER_SECONDS: Final = 120.0
CONNECT_SECONDS: Final = 5.0
RETRY_SECONDS: Final = 1.0
SILENT_SECONDS: Final = 60.0
"""A stream without a byte for so long, four heartbeats, is dead."""
EVENTS: Final = f"{V1}/events"


class ControlRefused(Exception):
    """The server refused a request: `status`, `error` and `hint` are those of its answer."""

    def __init__(self, status: int, refused: Refused) -> None:
        super().__init__(f"{refused.error} ({refused.hint})" if refused.hint else refused.error)
        self.status = status
        self.error = refused.error
        self.hint = refused.hint


class NoControl(ValueError):
    """No cluster on a data directory serves HTTP; one line that says how to start one."""


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """An event of a node: what `kraftsim list events` describes, with the envelope of its line.

    `event_id` is what a stream goes on behind; `fields` are those of the event.
    """

    event_id: str
    kind: str
    node: str
    incarnation: int
    n: int
    t_ns: int
    wall_ms: int
    fields: Mapping[str, object]


ENVELOPE: Final = ("kind", "node", "incarnation", "n", "t_ns", "wall_ms", "run")


# Exchanges: what both clients send, and what comes back
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HttpExchange(Generic[T]):
    """A request, and the type of its answer."""

    method: str
    path: str
    answer: type[T]
    body: msgspec.Struct | None = None

    @property
    def content(self) -> bytes | None:
        """The body as JSON."""
        return None if self.body is None else msgspec.json.encode(self.body)

    @property
    def headers(self) -> dict[str, str]:
        """The headers that the body needs."""
        return {} if self.body is None else {"Content-Type": "application/json"}

    def result(self, response: httpx.Response) -> T:
        """Return the answer. Raises ControlRefused."""
        if response.is_success:
            return msgspec.json.decode(response.content, type=self.answer)
        raise _refusal(response.status_code, response.content)


def _refusal(status: int, content: bytes) -> ControlRefused:
    try:
        refused = msgspec.json.decode(content, type=Refused)
    except msgspec.DecodeError:
        refused = Refused(error=content.decode(errors="replace") or "an empty answer")
    return ControlRefused(status, refused)


def _on_node(
    node: str, verb: str, body: msgspec.Struct | None = None
) -> HttpExchange[NodeOutcomes]:
    return HttpExchange("POST", f"{V1}/nodes/{quote(node, safe='')}/{verb}", NodeOutcomes, body)


def _restart(
    node: str, release: str | None, settings: Mapping[str, str] | None
) -> HttpExchange[NodeOutcomes]:
    return _on_node(node, "restart", RestartBody(release=release, settings=dict(settings or {})))


def _slow(
    target: str, latency_ms: float, jitter_ms: float, bytes_per_second: int
) -> HttpExchange[ImposedConditions]:
    body = SlowBody(
        target=target,
        latency_ms=latency_ms,
        jitter_ms=jitter_ms,
        bytes_per_second=bytes_per_second,
    )
    return HttpExchange("POST", f"{V1}/network/slow", ImposedConditions, body)


def _inject(fault: RequestFault | str) -> HttpExchange[RequestFaultReport]:
    text = fault if isinstance(fault, str) else request_fault_text(fault)
    return HttpExchange("POST", FAULTS, RequestFaultReport, RequestFaultText(text=text))


FAULTS: Final = f"{V1}/request-faults"
DESCRIBE: Final = HttpExchange("GET", f"{V1}/cluster", ControlledDescription)
STATE: Final = HttpExchange("GET", f"{V1}/state", ClusterSnapshot)
NODES: Final = HttpExchange("GET", f"{V1}/nodes", Nodes)
NETWORK: Final = HttpExchange("GET", f"{V1}/network", ImposedConditions)
REQUEST_FAULTS: Final = HttpExchange("GET", FAULTS, RequestFaultReports)
END_FAULTS: Final = HttpExchange("DELETE", FAULTS, Ended)


class EventLines:
    """Puts events together from the lines of a stream of server-sent events."""

    def __init__(self, last_event_id: str | None) -> None:
        self.last_event_id = last_event_id
        self._id: str | None = None
        self._data: list[str] = []

    @property
    def headers(self) -> dict[str, str]:
        """The header that makes a stream go on behind the last event."""
        return {} if self.last_event_id is None else {"Last-Event-ID": self.last_event_id}

    def begin(self) -> None:
        """A new stream begins: half an event of the one before is nothing."""
        self._id, self._data = None, []

    def take(self, line: str) -> StreamedEvent | None:
        """Take a line; return the event that it completes."""
        if line.startswith("id: "):
            self._id = line[4:]
        elif line.startswith("data: "):
            self._data.append(line[6:])
        elif not line:
            data, self._data = "\n".join(self._data), []
            if self._id is not None:
                self.last_event_id, self._id = self._id, None
            if data:
                return self._event(data)
        return None

    def _event(self, data: str) -> StreamedEvent:
        values = msgspec.json.decode(data)
        return StreamedEvent(
            event_id=self.last_event_id or "",
            kind=values["kind"],
            node=values["node"],
            incarnation=values["incarnation"],
            n=values["n"],
            t_ns=values["t_ns"],
            wall_ms=values["wall_ms"],
            fields={name: value for name, value in values.items() if name not in ENVELOPE},
        )


def _event_query(
    nodes: Sequence[str], kinds: Sequence[str], begin: str, follow: bool
) -> dict[str, str]:
    query = {"from": begin, "follow": "true" if follow else "false"}
    if nodes:
        query["node"] = ",".join(nodes)
    if kinds:
        query["kind"] = ",".join(kinds)
    return query


def _found(data: Path | str) -> tuple[str, str]:
    state = read_state(RunDirectory(Path(data).absolute()))
    if state is None or not state.http:
        raise NoControl(
            f"no cluster with HTTP runs on {data}; start one by: kraftsim up --http 8080 --data "
            f"{data}"
        )
    return state.http, state.http_token


class ClientSettings(TypedDict):
    """Arguments of an httpx client."""

    base_url: str
    headers: dict[str, str]
    timeout: httpx.Timeout
    trust_env: bool
    follow_redirects: bool


def _settings(url: str, token: str, seconds: float) -> ClientSettings:
    """Return arguments of an httpx client: no proxy of the environment gets the token."""
    return {
        "base_url": url.rstrip("/"),
        "headers": {"Authorization": f"Bearer {token}"},
        "timeout": httpx.Timeout(seconds, connect=CONNECT_SECONDS),
        "trust_env": False,
        "follow_redirects": False,
    }


EVENT_TIMEOUT: Final = httpx.Timeout(SILENT_SECONDS, connect=CONNECT_SECONDS)


class ControlClient:
    """The HTTP API of a cluster; every method blocks.

    Targets are those of the command line: names, patterns, `leader`; of links also 'A>B', 'A<>B'.
    """

    def __init__(self, url: str, token: str, *, seconds: float = ANSWER_SECONDS) -> None:
        self.url, self.token = url.rstrip("/"), token
        self._http = httpx.Client(**_settings(url, token, seconds))

    @classmethod
    def of(cls, data: Path | str = "runs/up") -> "ControlClient":
        """Return a client of the cluster of `kraftsim up --http` on a data directory.

        Raises NoControl.
        """
        return cls(*_found(data))

    def __enter__(self) -> "ControlClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def send(self, exchange: HttpExchange[T]) -> T:
        """Send a request and return the answer. Raises ControlRefused."""
        response = self._http.request(
            exchange.method, exchange.path, content=exchange.content, headers=exchange.headers
        )
        return exchange.result(response)

    # State
    # ----------------------------------------------------------------------------------------------

    def describe(self) -> ControlledDescription:
        """Return what is controlled, and the verbs it has."""
        return self.send(DESCRIBE)

    def state(self) -> ClusterSnapshot:
        """Return everything at one moment."""
        return self.send(STATE)

    def nodes(self) -> tuple[NodeStatus, ...]:
        """Return all nodes and whether they run."""
        return self.send(NODES).nodes

    def events(
        self,
        *,
        nodes: Sequence[str] = (),
        kinds: Sequence[str] = (),
        begin: str = "now",
        follow: bool = True,
        last_event_id: str | None = None,
    ) -> Iterator[StreamedEvent]:
        """Yield events, with `follow` for ever; a stream that breaks is opened again behind the
        last event. `begin` is `now`, `start` or ms since the run began.
        """
        lines = EventLines(last_event_id)
        query = _event_query(nodes, kinds, begin, follow)
        while True:
            try:
                lines.begin()
                with self._http.stream(
                    "GET", EVENTS, params=query, headers=lines.headers, timeout=EVENT_TIMEOUT
                ) as response:
                    if not response.is_success:
                        raise _refusal(response.status_code, response.read())
                    for line in response.iter_lines():
                        event = lines.take(line)
                        if event is not None:
                            yield event
            except httpx.TransportError:
                if not follow or lines.last_event_id is None:
                    raise
            if not follow:
                return
            time.sleep(RETRY_SECONDS)

    # Nodes
    # ----------------------------------------------------------------------------------------------

    def kill(self, node: str) -> tuple[NodeOutcome, ...]:
        """Kill nodes with SIGKILL."""
        return self.send(_on_node(node, "kill")).nodes

    def stop(self, node: str) -> tuple[NodeOutcome, ...]:
        """Stop nodes cleanly."""
        return self.send(_on_node(node, "stop")).nodes

    def restart(
        self,
        node: str,
        *,
        release: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> tuple[NodeOutcome, ...]:
        """Restart nodes on their disks, with another release and settings if given."""
        return self.send(_restart(node, release, settings)).nodes

    def upgrade(self, release: str, node: str = "*") -> tuple[NodeOutcome, ...]:
        """Restart nodes with another release, as in a rolling upgrade."""
        return self.send(_on_node(node, "upgrade", UpgradeBody(release=release))).nodes

    def pause(self, node: str) -> tuple[NodeOutcome, ...]:
        """Pause processes with SIGSTOP."""
        return self.send(_on_node(node, "pause")).nodes

    def resume(self, node: str = "*") -> tuple[NodeOutcome, ...]:
        """Resume paused processes."""
        return self.send(_on_node(node, "resume")).nodes

    def fail_disk(self, node: str, fault: str) -> tuple[NodeOutcome, ...]:
        """Damage the disks of nodes that are down: `lost-disk` or `bit-rot`."""
        return self.send(_on_node(node, "disk", DiskFaultBody(fault=fault))).nodes

    # Links
    # ----------------------------------------------------------------------------------------------

    def network(self) -> tuple[ImposedCondition, ...]:
        """Return the conditions of links in force."""
        return self.send(NETWORK).conditions

    def cut(self, target: str) -> tuple[ImposedCondition, ...]:
        """Interrupt links until they are healed."""
        body = LinkBody(target=target)
        return self.send(
            HttpExchange("POST", f"{V1}/network/cut", ImposedConditions, body)
        ).conditions

    def slow(
        self,
        target: str,
        *,
        latency_ms: float = 0,
        jitter_ms: float = 0,
        bytes_per_second: int = 0,
    ) -> tuple[ImposedCondition, ...]:
        """Delay or limit links until they are healed."""
        return self.send(_slow(target, latency_ms, jitter_ms, bytes_per_second)).conditions

    def reset(self, target: str) -> Effect:
        """Reset the connections of links, once."""
        body = LinkBody(target=target)
        return self.send(HttpExchange("POST", f"{V1}/network/reset", Effect, body))

    def heal(self, *nodes: str) -> int:
        """End all conditions of links, or those of some nodes; return how many."""
        body = HealBody(nodes=nodes)
        return self.send(HttpExchange("POST", f"{V1}/network/heal", Healed, body)).healed

    def lift(self, number: int) -> Effect:
        """End one condition of links."""
        return self.send(HttpExchange("DELETE", f"{V1}/network/{number}", Effect))

    # Faults of requests
    # ----------------------------------------------------------------------------------------------

    def inject(self, fault: RequestFault | str) -> RequestFaultReport:
        """Add a fault of requests, as a text or a RequestFault."""
        return self.send(_inject(fault))

    def request_faults(self) -> tuple[RequestFaultReport, ...]:
        """Return the faults of requests, and what they took effect on."""
        return self.send(REQUEST_FAULTS).request_faults

    def request_fault(self, number: int) -> RequestFaultReport:
        """Return one fault of requests."""
        return self.send(HttpExchange("GET", f"{FAULTS}/{number}", RequestFaultReport))

    def end_fault(self, number: int) -> RequestFaultReport:
        """End a fault of requests."""
        return self.send(HttpExchange("DELETE", f"{FAULTS}/{number}", RequestFaultReport))

    def end_faults(self) -> int:
        """End all faults of requests; return how many there were."""
        return self.send(END_FAULTS).ended


class AsyncControlClient:
    """The same as coroutines; it belongs to one event loop."""

    def __init__(self, url: str, token: str, *, seconds: float = ANSWER_SECONDS) -> None:
        self.url, self.token = url.rstrip("/"), token
        self._http = httpx.AsyncClient(**_settings(url, token, seconds))

    @classmethod
    def of(cls, data: Path | str = "runs/up") -> "AsyncControlClient":
        """See ControlClient."""
        return cls(*_found(data))

    async def __aenter__(self) -> "AsyncControlClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def send(self, exchange: HttpExchange[T]) -> T:
        """Send a request and return the answer. Raises ControlRefused."""
        response = await self._http.request(
            exchange.method, exchange.path, content=exchange.content, headers=exchange.headers
        )
        return exchange.result(response)

    async def describe(self) -> ControlledDescription:
        """See ControlClient."""
        return await self.send(DESCRIBE)

    async def state(self) -> ClusterSnapshot:
        """See ControlClient."""
        return await self.send(STATE)

    async def nodes(self) -> tuple[NodeStatus, ...]:
        """See ControlClient."""
        return (await self.send(NODES)).nodes

    async def events(
        self,
        *,
        nodes: Sequence[str] = (),
        kinds: Sequence[str] = (),
        begin: str = "now",
        follow: bool = True,
        last_event_id: str | None = None,
    ) -> AsyncIterator[StreamedEvent]:
        """See ControlClient."""
        lines = EventLines(last_event_id)
        query = _event_query(nodes, kinds, begin, follow)
        while True:
            try:
                lines.begin()
                async with self._http.stream(
                    "GET", EVENTS, params=query, headers=lines.headers, timeout=EVENT_TIMEOUT
                ) as response:
                    if not response.is_success:
                        raise _refusal(response.status_code, await response.aread())
                    async for line in response.aiter_lines():
                        event = lines.take(line)
                        if event is not None:
                            yield event
            except httpx.TransportError:
                if not follow or lines.last_event_id is None:
                    raise
            if not follow:
                return
            await asyncio.sleep(RETRY_SECONDS)

    async def kill(self, node: str) -> tuple[NodeOutcome, ...]:
        """See ControlClient."""
        return (await self.send(_on_node(node, "kill"))).nodes

    async def stop(self, node: str) -> tuple[NodeOutcome, ...]:
        """See ControlClient."""
        return (await self.send(_on_node(node, "stop"))).nodes

    async def restart(
        self,
        node: str,
        *,
        release: str | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> tuple[NodeOutcome, ...]:
        """See ControlClient."""
        return (await self.send(_restart(node, release, settings))).nodes

    async def upgrade(self, release: str, node: str = "*") -> tuple[NodeOutcome, ...]:
        """See ControlClient."""
        return (await self.send(_on_node(node, "upgrade", UpgradeBody(release=release)))).nodes

    async def pause(self, node: str) -> tuple[NodeOutcome, ...]:
        """See ControlClient."""
        return (await self.send(_on_node(node, "pause"))).nodes

    async def resume(self, node: str = "*") -> tuple[NodeOutcome, ...]:
        """See ControlClient."""
        return (await self.send(_on_node(node, "resume"))).nodes

    async def fail_disk(self, node: str, fault: str) -> tuple[NodeOutcome, ...]:
        """See ControlClient."""
        return (await self.send(_on_node(node, "disk", DiskFaultBody(fault=fault)))).nodes

    async def network(self) -> tuple[ImposedCondition, ...]:
        """See ControlClient."""
        return (await self.send(NETWORK)).conditions

    async def cut(self, target: str) -> tuple[ImposedCondition, ...]:
        """See ControlClient."""
        body = LinkBody(target=target)
        exchange = HttpExchange("POST", f"{V1}/network/cut", ImposedConditions, body)
        return (await self.send(exchange)).conditions

    async def slow(
        self,
        target: str,
        *,
        latency_ms: float = 0,
        jitter_ms: float = 0,
        bytes_per_second: int = 0,
    ) -> tuple[ImposedCondition, ...]:
        """See ControlClient."""
        exchange = _slow(target, latency_ms, jitter_ms, bytes_per_second)
        return (await self.send(exchange)).conditions

    async def reset(self, target: str) -> Effect:
        """See ControlClient."""
        body = LinkBody(target=target)
        return await self.send(HttpExchange("POST", f"{V1}/network/reset", Effect, body))

    async def heal(self, *nodes: str) -> int:
        """See ControlClient."""
        exchange = HttpExchange("POST", f"{V1}/network/heal", Healed, HealBody(nodes=nodes))
        return (await self.send(exchange)).healed

    async def lift(self, number: int) -> Effect:
        """See ControlClient."""
        return await self.send(HttpExchange("DELETE", f"{V1}/network/{number}", Effect))

    async def inject(self, fault: RequestFault | str) -> RequestFaultReport:
        """See ControlClient."""
        return await self.send(_inject(fault))

    async def request_faults(self) -> tuple[RequestFaultReport, ...]:
        """See ControlClient."""
        return (await self.send(REQUEST_FAULTS)).request_faults

    async def request_fault(self, number: int) -> RequestFaultReport:
        """See ControlClient."""
        return await self.send(HttpExchange("GET", f"{FAULTS}/{number}", RequestFaultReport))

    async def end_fault(self, number: int) -> RequestFaultReport:
        """See ControlClient."""
        return await self.send(HttpExchange("DELETE", f"{FAULTS}/{number}", RequestFaultReport))

    async def end_faults(self) -> int:
        """See ControlClient."""
        return (await self.send(END_FAULTS)).ended

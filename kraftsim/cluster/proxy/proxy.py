"""The proxy itself: listens for every node, tracks all connections, and carries out requests."""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from ssl import SSLContext
from typing import Protocol

from kraftsim.cluster.proxy.conditions import Conditions
from kraftsim.cluster.proxy.control_messages import (
    ANSWERED,
    GIVEN_UP,
    Answer,
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
    Notify,
    Order,
    Post,
    ProxyPlan,
    RequestFaultHit,
    Unwatch,
)
from kraftsim.cluster.proxy.flow import Flow
from kraftsim.cluster.proxy.frame_stream import Frame, FrameWatches, WaitingFrame
from kraftsim.cluster.proxy.relay import Relay
from kraftsim.cluster.proxy.request_gate import GateActions, RequestGate, UnderWay
from kraftsim.lab.faults.field import BELIEVER_ANY, BELIEVER_CONNECTED, Effect, Link
from kraftsim.lab.faults.rules_request_faults import (
    FETCHER,
    RequestFault,
    RequestFaultStatus,
    RequestHit,
    RequestRules,
    SeenRequest,
    client_ids_of_node,
)
from kraftsim.world.interface import stream

ALONE_SECONDS = 5.0
"""Time-out for the answer to a repeated request."""
READ_BYTES = 1 << 16
HALF = 0.5
HITS_KEPT = 1000
"""With so many faults those that are over are forgotten first."""


class NotDone(ValueError):
    """A request that cannot be carried out; one line with the reason."""


@dataclass(eq=False, slots=True)
class Hold:
    """A held frame, and with it everything behind it."""

    post: Post
    flow: Flow
    connection: int
    is_before: bool
    tell: Notify


@dataclass(eq=False, slots=True)
class Halved:
    """Half-open connections: one end is gone without the other knowing."""

    believing: list[int] = field(default_factory=list)
    swallowed_bytes: int = 0
    deceived: dict[int, None] = field(default_factory=dict)

    def swallow(self, connection: int, size_bytes: int) -> None:
        """Count discarded bytes."""
        self.swallowed_bytes += size_bytes
        self.deceived[connection] = None

    @property
    def effect(self) -> Effect:
        """Bytes that were sent on half-open connections."""
        return Effect(
            touched_bytes=self.swallowed_bytes,
            connections=len(self.deceived),
            closed=len(self.believing),
        )


class RelayFrames(Protocol):
    """Reads the frames of one connection, and passes bytes on."""

    def feed_request(self, data: bytes) -> None:
        """Take bytes of the client."""
        ...

    def feed_response(self, data: bytes) -> None:
        """Take bytes of the node."""
        ...

    def end_requests(self) -> None:
        """The client sends no more."""
        ...

    def end_responses(self) -> None:
        """The node sends no more."""
        ...

    def keeps_end(self, end: Callable[[], None]) -> bool:
        """Return whether the end of one side is not to be seen by the other now; then it is called
        when it is.
        """
        ...


class Proxy:
    """The state of one proxy process."""

    def __init__(self, plan: ProxyPlan, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.random = stream(plan.seed, "proxy", 1, "jitter")
        self.follows_frames = plan.follows_frames
        self.judges_requests = plan.judges_requests
        self.rules = RequestRules(plan.seed)
        self.read_frames: Callable[[Relay, Flow, Flow], RelayFrames] | None = None
        """Makes what reads the frames of a connection instead of a gate that is always there."""
        self.client_tls: SSLContext | None = None
        """Terminates TLS towards clients."""
        self.node_tls: SSLContext | None = None
        """The same towards nodes."""
        self._hits: dict[int, Notify] = {}
        self.relays: dict[int, Relay] = {}
        names = self._node_names = {post.name for post in plan.posts}
        self.conditions = Conditions(names)
        self.watches = FrameWatches(names)
        self._plan = plan
        self._names_at = {
            post.outgoing_host: post.name for post in plan.posts if post.outgoing_host is not None
        }
        self._names_by_client_id = _client_ids(plan)
        self._servers: list[asyncio.AbstractServer] = []
        self._holds: dict[int, Hold] = {}
        self._halved: dict[int, Halved] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        self._next_hold = 1

    async def open(self) -> None:
        """Listen for every node. Raises OSError naming the address."""
        for post in self._plan.posts:
            self._servers.append(
                await self.loop.create_server(
                    self._acceptor(partial(_the_post, post)), post.host, post.port, backlog=512
                )
            )

    async def listen(self, listener: socket.socket, post: Callable[[], Post]) -> None:
        """Listen for a node that was not in the plan; `post` is asked at each connection."""
        self._servers.append(
            await self.loop.create_server(
                self._acceptor(post), sock=listener, backlog=512, ssl=self.client_tls
            )
        )

    def add_name(self, name: str) -> None:
        """A node has this name from now on; other names are clients'."""
        self._node_names.add(name)

    def close(self) -> None:
        """End everything."""
        for server in self._servers:
            server.close()
        for relay in list(self.relays.values()):
            relay.reset()

    def _acceptor(self, post: Callable[[], Post]) -> Callable[[], asyncio.Protocol]:
        return lambda: Relay(self, post()).near

    # Callbacks of connections
    # ----------------------------------------------------------------------------------------------

    def next_connection(self) -> int:
        """Return a number for a new connection."""
        self._connections += 1
        return self._connections

    def name_at(self, host: str) -> str | None:
        """Return the node that connects from an address; None if there is none."""
        return self._names_at.get(host)

    def name_of_client(self, client_id: str) -> str:
        """Return the node with this client id, where nodes have no address of their own; else the
        client id itself.
        """
        fetcher = FETCHER.fullmatch(client_id)
        return self._names_by_client_id.get(
            fetcher[1] if fetcher is not None else client_id, client_id
        )

    def spawn(self, work: Coroutine[object, object, None]) -> None:
        """Run something beside."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def given_up(self, connection: int) -> None:
        """A client closes its connection: notify the holders of its frames."""
        for number, hold in self._holds.items():
            if hold.connection == connection:
                hold.tell(FrameReport(hold=number, what=GIVEN_UP))

    def hold(self, post: Post, flow: Flow, frame: Frame, waiting: WaitingFrame) -> None:
        """A frame is held: notify the client whose watch it matched."""
        number = self._next_hold
        self._next_hold += 1
        self._holds[number] = Hold(
            post, flow, frame.connection, waiting.watch.moment != "after", waiting.tell
        )
        waiting.tell(
            FrameHeld(
                watch=waiting.number,
                hold=number,
                api_key=frame.api_key,
                is_response=frame.is_response,
                client=frame.client,
                server=frame.server,
                size_bytes=frame.size_bytes,
                connection=frame.connection,
                correlation_id=frame.correlation_id,
            )
        )

    async def _send_alone(
        self, post: Post, frame: bytes, after_seconds: float, on_answer: Callable[[int], None]
    ) -> None:
        """Send a frame on a new connection; call back with the size of what is read of an
        answer.
        """
        await asyncio.sleep(after_seconds)
        try:
            async with asyncio.timeout(ALONE_SECONDS):
                tls = self.node_tls
                reader, writer = await asyncio.open_connection(
                    post.behind_host,
                    post.behind_port,
                    ssl=tls,
                    server_hostname=post.behind_host if tls is not None else None,
                )
                writer.write(frame)
                answer = await reader.read(READ_BYTES)
                writer.close()
        except OSError:  # a time-out is one
            return
        if answer:
            on_answer(len(answer))

    def gate(
        self,
        relay: Relay,
        *,
        to_node: Callable[[bytes], None],
        to_client: Callable[[bytes], None],
        topic_name: Callable[[bytes], str | None] | None = None,
        under_way: UnderWay | None = None,
    ) -> RequestGate:
        """Return the faults of requests of a connection."""
        post, requests, responses = relay.post, relay.requests, relay.responses
        assert requests is not None and responses is not None, "the near end is known"

        def copy(frame: bytes, after_ms: float, on_answer: Callable[[], None]) -> None:
            self.spawn(self._send_alone(post, frame, after_ms / 1000, lambda _: on_answer()))

        return RequestGate(
            post.name,
            relay.source if relay.source in self._node_names else "",
            rules=self.rules,
            actions=GateActions(
                to_node=to_node,
                to_client=to_client,
                reset=relay.reset,
                end_requests=partial(requests.end, "eof"),
                end_responses=partial(responses.end, "eof"),
                copy=copy,
                later=lambda delay_ms, work: self.loop.call_later(delay_ms / 1000, work),
                now_ms=self._now_ms,
            ),
            on_effect=self._on_effect,
            client_ids=self._names_by_client_id,
            topic_name=topic_name,
            under_way=under_way,
        )

    def inject(self, fault: RequestFault, notify: Notify) -> int:
        """Add a fault of requests; return its number."""
        if len(self._hits) >= HITS_KEPT:
            running = {each.number for each in self.fault_status() if not each.is_over}
            self._hits = {each: call for each, call in self._hits.items() if each in running}
        number = self.rules.add(fault, self._now_ms())
        self._hits[number] = notify
        if fault.duration_ms is not None:
            self.loop.call_later(
                fault.duration_ms / 1000, lambda: self.rules.expire(self._now_ms())
            )
        return number

    def end_fault(self, number: int) -> None:
        """End a fault of requests; nothing, if it is over."""
        self.rules.remove(number)
        self._hits.pop(number, None)

    def fault_status(self) -> tuple[RequestFaultStatus, ...]:
        """Return the faults of requests so far."""
        return self.rules.status(self._now_ms())

    def _now_ms(self) -> float:
        return self.loop.time() * 1000

    def _on_effect(self, number: int, fault: RequestFault, request: SeenRequest) -> None:
        notify = self._hits.get(number)
        if notify is not None:
            notify(RequestFaultHit(number=number, hit=RequestHit.of(request)))

    def _repeat(self, hold: Hold, number: int, after_seconds: float, frame: bytes) -> None:
        def on_answer(size_bytes: int) -> None:
            hold.tell(FrameReport(hold=number, what=ANSWERED, size_bytes=size_bytes))

        self.spawn(self._send_alone(hold.post, frame, after_seconds, on_answer))

    # Orders
    # ----------------------------------------------------------------------------------------------

    def carry_out(self, number: int, order: Order, notify: Notify) -> Answer:
        """Carry out a request; `notify` is called with frames that match a watch of this request.

        Raises NotDone.
        """
        match order:
            case Impose(links=links, condition=condition):
                return Answer(id=number, number=self.conditions.impose(links, condition))
            case Lift(number=condition_number):
                return Answer(id=number, effect=self._lift(condition_number))
            case LiftAll(nodes=nodes):
                halved = [] if nodes else list(self._halved)
                for condition_number in halved:
                    self._lift(condition_number)
                return Answer(id=number, number=self.conditions.lift_all(nodes) + len(halved))
            case Cut(links=links, only_one=only_one):
                return Answer(id=number, effect=self.cut(links, only_one))
            case Halve():
                return Answer(id=number, number=self._halve(order))
            case Follow(watch=wanted):
                if not self.follows_frames:
                    raise NotDone("this proxy does not parse frames")
                return Answer(id=number, number=self.watches.add(wanted, notify))
            case Unwatch(number=watch_number):
                self.watches.remove(watch_number)
                return Answer(id=number)
            case Decide():
                self._decide(order)
                return Answer(id=number)
            case InjectRequestFault(fault=fault):
                if not self.judges_requests:
                    raise NotDone("this proxy carries out no faults of requests")
                return Answer(id=number, number=self.inject(fault, notify))
            case EndRequestFault(number=fault_number):
                self.end_fault(fault_number)
                return Answer(id=number)
            case ListRequestFaults():
                return Answer(id=number, faults=self.rules.status(self._now_ms()))

    def forget(self, notify: Notify) -> None:
        """The control client has disconnected and cannot decide about its held frames any more, so
        they pass.
        """
        self.watches.remove_those_of(notify)
        for number in [number for number, tell in self._hits.items() if tell == notify]:
            del self._hits[number]
            self.rules.remove(number)
        for number in [number for number, hold in self._holds.items() if hold.tell == notify]:
            self._holds.pop(number).flow.thaw()

    def _over(self, links: tuple[Link, ...]) -> list[Relay]:
        """Return the connections that use one of the links."""
        flows = {flow for state in self.conditions.over(links) for flow in state.flows}
        return [
            relay
            for relay in self.relays.values()
            if relay.requests in flows or relay.responses in flows
        ]

    def _lift(self, number: int) -> Effect:
        if number in self._halved:
            halved = self._halved.pop(number)
            for connection in halved.believing:
                if connection in self.relays:
                    self.relays[connection].reset()
            return halved.effect
        return self.conditions.lift(number)

    def _halve(self, order: Halve) -> int:
        halved = Halved()
        for relay in self._over(order.links):
            if order.gone is not None:
                near_believes = relay.post.name == order.gone
            else:
                near_believes = order.believer == BELIEVER_CONNECTED or (
                    order.believer == BELIEVER_ANY and self.random.random() < HALF
                )
            if relay.halve(
                near_believes=near_believes, on_bytes=partial(halved.swallow, relay.number)
            ):
                halved.believing.append(relay.number)
        number = self.conditions.next_number()
        self._halved[number] = halved
        return number

    def cut(self, links: tuple[Link, ...], only_one: bool) -> Effect:
        """Reset the connections over links, or one of them chosen at random."""
        reset = self._over(links)
        if only_one and reset:
            reset = [self.random.choice(reset)]
        busy = [relay for relay in reset if relay.is_busy]
        lost = sum(
            flow.queued_bytes
            for relay in reset
            for flow in (relay.requests, relay.responses)
            if flow is not None
        )
        for relay in reset:
            relay.reset()
        return Effect(touched_bytes=lost, connections=len(busy), closed=len(reset))

    def _decide(self, order: Decide) -> None:
        hold = self._holds.get(order.hold)
        if hold is None:
            raise NotDone(f"no frame is held with number {order.hold}")
        frames = hold.flow.frames
        assert frames is not None, "frames are followed"
        match order.action:
            case "cut" if not hold.is_before:
                hold.flow.end("reset")
            case "cut":
                frames.cut_after(int(order.value))
            case "swallow":
                frames.swallow()
            case "send":
                frames.is_under_way = True
            case "repeat":
                frames.copy(partial(self._repeat, hold, order.hold, order.value / 1000))
            case "delay":
                del self._holds[order.hold]
                frames.is_under_way = True
                self.loop.call_later(order.value / 1000, hold.flow.thaw)
            case "pass":
                del self._holds[order.hold]
                hold.flow.thaw()
            case other:
                raise NotDone(
                    "a held frame can pass, be cut, swallowed, sent, delayed or repeated, not "
                    f"{other!r}"
                )


def _client_ids(plan: ProxyPlan) -> dict[str, str]:
    """The client ids of nodes without an address of their own."""
    return {
        client_id: post.name
        for post in plan.posts
        if post.outgoing_host is None
        for client_id in (*client_ids_of_node(post.node_id), *post.client_ids)
    }


def _the_post(post: Post) -> Post:
    return post

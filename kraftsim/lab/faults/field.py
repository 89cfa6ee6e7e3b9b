"""The fault-injection driver over sockets and real time: operations on a cluster of processes or an
embedded one, and the fault that uses them.

In simulation a kind calls into the simulated world (`inject` of its file in
`kraftsim.lab.faults.kinds`). Over sockets it can do less: signals to processes, and changes to the
byte streams in a proxy in front of every node. Such a kind has `FaultKind.over_sockets`, a
coroutine function that begins the fault, waits while it lasts, and ends it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from kraftsim.events.runs import FaultTookEffect
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    BOTH_WAYS,
    ONE_WAY,
    PATTERN_SIGNS,
    directions,
    is_group,
    members,
    names_leader,
    with_leader,
)
from kraftsim.lab.faults.rules_request_faults import RequestFault, RequestHit

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the harness)

    from kraftsim.lab.faults.fault import Fault, Value

T = TypeVar("T")
Link = tuple[str, str]
"""Source and target: bytes that the first sends to the second."""
CLIENTS = "clients"
"""In a link: every client that is not a node of the cluster."""
KILL_AFTER_MS = 10_000
BELIEVER_CONNECTED, BELIEVER_ACCEPTED, BELIEVER_ANY = "connected", "accepted", "any"
SERVER_PREFIX = "zookeeper-"
NODE_PREFIXES = ("broker-", "controller-", SERVER_PREFIX)


class Condition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A temporary condition of links; a zero or False leaves an aspect unchanged.

    `holds`: bytes wait until it is over, in order. `refuses`: new connections are reset; `ignores`:
    they transfer no data until then. `latency_ms` and up to `jitter_ms` more for all bytes; at most
    `bytes_per_second` over the link; of a thousand reads `tail_permille` are delayed, by a Pareto
    distribution from `tail_scale_ms` up to `tail_longest_ms`. A single write arrives in pieces of
    `piece_bytes`, at most `pieces_max` of them, up to `gap_us` apart, or, with `tears_everywhere`,
    in two, at a split point that advances.
    """

    holds: bool = False
    refuses: bool = False
    ignores: bool = False
    latency_ms: float = 0
    jitter_ms: float = 0
    bytes_per_second: int = 0
    tail_permille: int = 0
    tail_scale_ms: float = 0
    tail_longest_ms: float = 0
    piece_bytes: int = 0
    pieces_max: int = 100
    gap_us: int = 200
    tears_everywhere: bool = False

    @property
    def tears(self) -> bool:
        """Whether single writes arrive in pieces."""
        return self.piece_bytes > 0 or self.tears_everywhere


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a condition, or of a reset: how many bytes it affected (held, delayed, split,
    discarded), and how many connections.

    Of a reset, `connections` are those with bytes in flight, and `closed` are all that were reset.
    """

    touched_bytes: int = 0
    connections: int = 0
    closed: int = 0


class Watch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The frame to wait for: the nth that matches, of an API or of any, between two names or any;
    CLIENTS is every client that is not a node.

    On one connection, or not on one; with one correlation id. `moment` 'before' holds the frame
    itself, 'after' the bytes that follow it.
    """

    api_key: int | None = None
    is_response: bool = False
    client: str | None = None
    server: str | None = None
    nth: int = 1
    moment: str = "before"
    sent_by_node: bool = False
    """Whether frames of clients are ignored."""
    connection: int | None = None
    not_connection: int | None = None
    correlation_id: int | None = None


class HeldFrame(Protocol):
    """A frame that the proxy holds, with everything behind it on its connection, until the function
    of the kind has decided about it.
    """

    api_key: int
    is_response: bool
    client: str
    server: str
    size_bytes: int
    connection: int
    correlation_id: int

    async def let_pass(self) -> None:
        """Release it, with the decisions about it."""
        ...

    async def cut(self, after_bytes: int) -> None:
        """Forward so many bytes of it (its size field included), then reset the connection at both
        ends.
        """
        ...

    async def swallow(self) -> None:
        """Drop it; the connection stays open."""
        ...

    async def delay(self, delay_ms: float) -> None:
        """Delay it and everything behind it."""
        ...

    async def send(self) -> None:
        """Mark it as sent: it is only late, and arrives even if its sender is gone by then."""
        ...

    async def repeat(self, after_ms: float) -> None:
        """Send a copy of a request on a new connection, so long after it has passed."""
        ...

    async def given_up(self) -> bool:
        """Wait until its client closes the connection; return True."""
        ...

    async def copy_answered(self) -> int:
        """Wait until a copy was answered; return the size of what was read of the answer."""
        ...


class FaultDriver(Protocol):
    """Fault operations on a cluster over sockets.

    Nodes are given by name; embedded ones cannot be paused.
    """

    @property
    def node_names(self) -> Sequence[str]:
        """All nodes of the cluster."""
        ...

    async def leader(self) -> str:
        """Return the leader of the metadata quorum, in ZooKeeper mode the controller, as soon as
        there is one.
        """
        ...

    def is_down(self, node: str) -> bool:
        """Return whether a node was taken down and not restarted."""
        ...

    async def kill(self, node: str) -> bool:
        """Kill a node with SIGKILL; an embedded one is aborted.

        Return whether there was anything to do.
        """
        ...

    async def stop(self, node: str, *, kill_after_ms: int = KILL_AFTER_MS) -> bool:
        """Stop a node cleanly (SIGTERM); one that takes too long is killed.

        Return whether there was anything to do.
        """
        ...

    async def restart(self, node: str) -> bool:
        """Start a node that is down. Return whether there was anything to do."""
        ...

    def tell(self, node: str, settings: Mapping[str, str | None]) -> dict[str, str | None]:
        """Override settings of a node from its next start on, None for the original value; return
        the former overrides.
        """
        ...

    async def pause(self, node: str) -> bool:
        """Pause a node (SIGSTOP). Return whether there was anything to do."""
        ...

    async def resume(self, node: str) -> bool:
        """Resume a node (SIGCONT). Return whether there was anything to do."""
        ...

    async def impose(self, links: Iterable[Link], condition: Condition) -> int:
        """Impose a condition on links, and return a number for `lift`."""
        ...

    async def lift(self, number: int) -> Effect:
        """End a condition; bytes that it held are delivered."""
        ...

    async def next_frame(self, watch: Watch) -> HeldFrame:
        """Wait for a frame, and return it held."""
        ...

    async def cut(self, links: Iterable[Link], *, only_one: bool = False) -> Effect:
        """Reset every connection that uses one of the links, or one of them chosen at random; the
        effect counts those with bytes in flight.
        """
        ...

    async def halve(
        self, links: Iterable[Link], *, believer: str = BELIEVER_ANY, gone: str | None = None
    ) -> int:
        """Make each connection over one of the links half-open: one end is gone without the other
        knowing; return a number for `lift`.

        `believer` is the end that stays open, whose bytes are discarded: 'connected', 'accepted' or
        'any'; or it is the one not at the node `gone`.
        """
        ...

    async def begin_request_fault(
        self, fault: RequestFault, on_hit: Callable[[RequestHit], None]
    ) -> int:
        """Add a fault of requests, and return its number; `on_hit` is called for each request that
        it takes effect on, on any thread.
        """
        ...

    async def end_request_fault(self, number: int) -> None:
        """End a fault of requests; nothing, if it is over."""
        ...

    async def until_replaced(self, node: str) -> None:
        """Wait until another node leads the quorum, or, for a broker, until the cluster considers
        it dead.
        """
        ...


class SocketInjection:
    """One fault that is injected over sockets: the argument of `FaultKind.over_sockets`."""

    def __init__(
        self,
        fault: "Fault",
        params: "Mapping[str, Value]",
        field: FaultDriver,
        *,
        random: "Random",
        emit: Callable[[FaultTookEffect], None],
    ) -> None:
        self.fault = fault
        self.field = field
        self.random = random
        """Random numbers of this fault alone, keyed by the seed of the run."""
        self.frame: HeldFrame | None = None
        """The frame that fired the trigger, if it waits for frames."""
        self.host: str | None = None
        """Where the trigger fired: the sender of the frame."""
        self.is_effective = False
        self._target = fault.target
        self._params = params
        self._emit = emit
        self._over = asyncio.Event()

    @property
    def target(self) -> str:
        """The target, resolved when the trigger fired; before that, as the fault names it."""
        return self._target

    async def understand(self, *, is_one_host: bool) -> None:
        """Resolve the target: the leader, or the sender of the frame that fired the trigger, or,
        for a kind with one host, one of a group.
        """
        target = self._target
        if target == AT_THE_TRIGGER and self.host is not None:
            target = self.host
        if names_leader(target):
            target = with_leader(target, await self.field.leader())
        if is_one_host and is_group(target):
            target = self.random.choice(members(target, self.field.node_names))
        self._target = target

    def integer(self, name: str) -> int:
        """Return a parameter that is a number."""
        value = self.fault.params.get(name, self._params[name])
        assert isinstance(value, int), f"{name} of {self.fault.kind} is a number"
        return value

    def text(self, name: str) -> str | None:
        """Return a parameter that is a text or absent."""
        value = self.fault.params.get(name, self._params[name])
        assert value is None or isinstance(value, str), f"{name} of {self.fault.kind} is a text"
        return value

    def nodes(self) -> list[str]:
        """Return the nodes that the target names; all of them if it names none."""
        return (
            list(self.field.node_names)
            if self.target == AT_THE_TRIGGER
            else members(self.target, self.field.node_names)
        )

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false."""
        return bool(self.fault.params.get(name, self._params[name]))

    def number_or_none(self, name: str) -> int | None:
        """Return a parameter that is a number or absent."""
        value = self.fault.params.get(name, self._params[name])
        return None if value is None else int(value)

    @property
    def links_to_all(self) -> list[Link]:
        """All links between nodes, and between them and clients."""
        return list(
            dict.fromkeys(
                link
                for node in self.field.node_names
                for link in links_of(node, self.field.node_names)
            )
        )

    def links(self) -> list[Link]:
        """Return the links that the target names: see `kraftsim.lab.faults.fault`; a single node
        has links to all others and to CLIENTS.
        """
        return links_of(self.target, self.field.node_names)

    def record_effect(self, effect: str) -> None:
        """Report that the fault is effective; only the first call counts."""
        if not self.is_effective:
            self.is_effective = True
            self._emit(FaultTookEffect(fault=self.fault.kind, target=self.target, effect=effect))

    async def lasts(self, duration_ms: int) -> None:
        """Release the frame that fired the trigger, and return when the fault must end: after a
        while, or as soon as all faults are healed.

        0 means not before the latter.
        """
        if self.frame is not None:
            await self.frame.let_pass()
        await self._ending(duration_ms)

    @property
    def is_over(self) -> bool:
        """Whether all faults are being healed."""
        return self._over.is_set()

    def end(self) -> None:
        """End lasting faults now."""
        self._over.set()

    async def before_it_ends(self, work: Awaitable[T], duration_ms: int) -> T | None:
        """Return the result of a coroutine; None, and the coroutine is cancelled, if the fault ends
        first.

        A held frame stays held.
        """
        task = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._ending(duration_ms))
        try:
            await asyncio.wait((task, ending), return_when=asyncio.FIRST_COMPLETED)  # noqa: TID251  (real time: no replay)
            return task.result() if task.done() else None
        finally:
            ending.cancel()
            task.cancel()
            await asyncio.gather(task, ending, return_exceptions=True)

    async def _ending(self, duration_ms: int) -> None:
        try:
            async with asyncio.timeout(duration_ms / 1000 if duration_ms else None):
                await self._over.wait()
        except TimeoutError:
            return

    async def while_it_lasts(
        self, links: Iterable[Link], condition: Condition, duration_ms: int
    ) -> None:
        """Impose a condition on links for a while; it is effective if it affected any bytes."""
        number = await self.field.impose(links, condition)
        try:
            await self.lasts(duration_ms)
        finally:
            effect = await self.field.lift(number)
        if effect.touched_bytes or effect.connections:
            self.record_effect(f"{effect.touched_bytes} bytes on {effect.connections} connections")


def links_of(target: str, nodes: Sequence[str]) -> list[Link]:
    """Return the links that a target names.

    A name that is not a node's is a client's: it connects to nodes, and no node connects to it.

    Raises KeyError for a name like a node's that is none.
    """
    words = [
        name
        for name in re.split(f"{BOTH_WAYS}|{ONE_WAY}|,", target)
        if not any(sign in name for sign in PATTERN_SIGNS)
    ]
    clients = [name for name in words if name not in nodes and not name.startswith(NODE_PREFIXES)]
    return directions(target, [*nodes, *clients, *([] if clients else [CLIENTS])])

"""What a kind of fault works with over sockets and real time: the verbs of a cluster of processes or an embedded one, and the strike that uses them.

In simulation a kind calls into the simulated world (`kraftsim.faults.strike`). Over sockets it can do less: signals to processes, and what a
proxy in front of every node does to bytes. A kind says so with `FaultKind.over_sockets`, a coroutine function that begins the fault, waits for as
long as it lasts, and ends it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from kraftsim.events.runs import FaultBit
from kraftsim.faults.targets import BOTH_WAYS, ONE_WAY, PATTERN_SIGNS, directions, is_group, members, names_leader, with_leader

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (a type; the stream itself comes from the harness)

    from kraftsim.faults.fault import Fault, Value

T = TypeVar("T")
Link = tuple[str, str]
"""Source and target: bytes that the first sends to the second."""
CLIENTS = "clients"
"""In a link: everybody who is no node of the cluster."""
AT_THE_TRIGGER = "*"
"""As a target: the host at which the trigger went off."""
KILL_AFTER_MS = 10_000
BELIEVER_CONNECTED, BELIEVER_ACCEPTED, BELIEVER_ANY = "connected", "accepted", "any"
SERVER_PREFIX = "zookeeper-"
NODE_PREFIXES = ("broker-", "controller-", SERVER_PREFIX)


class Condition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What links are like for a while; a zero or False leaves a side of them as it is.

    `holds`: bytes wait until it is over, in order. `refuses`: new connections are reset; `ignores`: they are made, and hear nothing until it is over.
    `latency_ms` and up to `jitter_ms` more for everything that is sent; `bytes_per_second` at most over the link; of a thousand reads `tail_permille`
    come late, by a Pareto distribution that begins at `tail_scale_ms` and is cut off at `tail_longest_ms`. What was written together arrives in
    pieces of `piece_bytes`, at most `pieces_max` of them, up to `gap_us` apart, or, with `tears_everywhere`, in two, torn at a place that moves on.
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
        """Whether what was written together arrives apart."""
        return self.piece_bytes > 0 or self.tears_everywhere


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a condition, or of a cut: how many bytes it touched (held, delayed, torn, thrown away), and how many connections.

    Of a cut, `connections` are those with something under way, and `closed` are all that were reset.
    """

    touched_bytes: int = 0
    connections: int = 0
    closed: int = 0


class Watch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which frame is waited for: the nth that fits, of an API or of any, between two names or any; CLIENTS is whoever is no node.

    Of one connection, or not of one; with one correlation id. `moment` 'before' holds the frame itself, 'after' what follows it.
    """

    api_key: int | None = None
    is_response: bool = False
    client: str | None = None
    server: str | None = None
    nth: int = 1
    moment: str = "before"
    sent_by_node: bool = False
    """Whether frames that clients send are passed over."""
    connection: int | None = None
    not_connection: int | None = None
    correlation_id: int | None = None


class HeldFrame(Protocol):
    """A frame that waits in the proxy, with everything behind it on its connection, until the function of the kind has decided about it."""

    api_key: int
    is_response: bool
    client: str
    server: str
    size_bytes: int
    connection: int
    correlation_id: int

    async def let_pass(self) -> None:
        """Let it go now, with what was decided about it."""
        ...

    async def cut(self, after_bytes: int) -> None:
        """Let so many bytes of it through (its size field included), then reset the connection at both ends."""
        ...

    async def swallow(self) -> None:
        """Let it never arrive; the connection goes on."""
        ...

    async def delay(self, delay_ms: float) -> None:
        """Let it, and everything behind it, wait."""
        ...

    async def send(self) -> None:
        """Say that it was sent and is only late: it arrives even if its sender is gone by then."""
        ...

    async def repeat(self, after_ms: float) -> None:
        """Send a copy of a request on a connection of its own, so long after it has passed."""
        ...

    async def given_up(self) -> bool:
        """Wait until its client closes the connection; return True."""
        ...

    async def copy_answered(self) -> int:
        """Wait until a copy was answered; return the size of what was read of the answer."""
        ...


class Field(Protocol):
    """What can be done to a cluster over sockets. Nodes go by their names; embedded ones cannot be paused."""

    @property
    def node_names(self) -> Sequence[str]:
        """All nodes of the cluster."""
        ...

    async def leader(self) -> str:
        """Return who leads the metadata quorum, before KRaft who is controller, as soon as somebody is."""
        ...

    def is_down(self, node: str) -> bool:
        """Tell whether a node was taken down and not started again."""
        ...

    async def kill(self, node: str) -> bool:
        """End a node by SIGKILL; an embedded one is aborted. Return whether there was anything to do."""
        ...

    async def stop(self, node: str, *, kill_after_ms: int = KILL_AFTER_MS) -> bool:
        """Let a node end cleanly (SIGTERM); one that takes longer is killed. Return whether there was anything to do."""
        ...

    async def restart(self, node: str) -> bool:
        """Start a node that is down. Return whether there was anything to do."""
        ...

    def tell(self, node: str, settings: Mapping[str, str | None]) -> dict[str, str | None]:
        """From its next start on, let a node have these settings on top of its own, None for its own; return what they were."""
        ...

    async def pause(self, node: str) -> bool:
        """Let a node stand still (SIGSTOP). Return whether there was anything to do."""
        ...

    async def resume(self, node: str) -> bool:
        """Let a node go on (SIGCONT). Return whether there was anything to do."""
        ...

    async def impose(self, links: Iterable[Link], condition: Condition) -> int:
        """Put a condition on links, and return the number by which it is lifted."""
        ...

    async def lift(self, number: int) -> Effect:
        """End a condition; what was held is delivered."""
        ...

    async def next_frame(self, watch: Watch) -> HeldFrame:
        """Wait for a frame, and return it held."""
        ...

    async def cut(self, links: Iterable[Link], *, only_one: bool = False) -> Effect:
        """Reset every connection whose bytes go over one of the links, or one that is drawn; the effect counts those with something under way."""
        ...

    async def halve(self, links: Iterable[Link], *, believer: str = BELIEVER_ANY, gone: str | None = None) -> int:
        """Let one end of each connection that goes over one of the links be lost without the other knowing; return a number for `lift`.

        `believer` says which end goes on, whose bytes go nowhere: 'connected', 'accepted' or 'any'; or it is the one that is not at the node `gone`.
        """
        ...

    async def until_replaced(self, node: str) -> None:
        """Wait until somebody else leads the quorum, or, of a broker, until the others hold it for dead."""
        ...


class FieldStrike:
    """One fault that is being done over sockets: what `FaultKind.over_sockets` is called with."""

    def __init__(self, fault: "Fault", params: "Mapping[str, Value]", field: Field, *, random: "Random", note: Callable[[FaultBit], None]) -> None:
        self.fault = fault
        self.field = field
        self.random = random
        """Numbers of this fault's own, keyed by the seed of the run."""
        self.frame: HeldFrame | None = None
        """The frame that the trigger waited for, if it waited for one."""
        self.host: str | None = None
        """Where the trigger went off: who sends the frame."""
        self.has_bitten = False
        self._target = fault.target
        self._params = params
        self._note = note
        self._over = asyncio.Event()

    @property
    def target(self) -> str:
        """Who is struck, as it was understood when the trigger went off; before that, as the fault says it."""
        return self._target

    async def understand(self, *, is_one_host: bool) -> None:
        """Find out who is meant: whoever leads, or sends the frame that the trigger waited for, or, where one host is struck, one of a group."""
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
        """Return the nodes that the target names; all of them where it names nobody."""
        return list(self.field.node_names) if self.target == AT_THE_TRIGGER else members(self.target, self.field.node_names)

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
        return list(dict.fromkeys(link for node in self.field.node_names for link in links_of(node, self.field.node_names)))

    def links(self) -> list[Link]:
        """Return the links that the target names: see `kraftsim.faults.targets`; a node alone has links to all others and to CLIENTS."""
        return links_of(self.target, self.field.node_names)

    def bite(self, effect: str) -> None:
        """Say that an outcome was changed; only the first time counts."""
        if not self.has_bitten:
            self.has_bitten = True
            self._note(FaultBit(fault=self.fault.kind, target=self.target, effect=effect))

    async def lasts(self, duration_ms: int) -> None:
        """Let the frame go that the trigger waited for, and return when the fault is to end: after a while, or as soon as everything is mended.

        0 means not before that.
        """
        if self.frame is not None:
            await self.frame.let_pass()
        await self._ending(duration_ms)

    @property
    def is_over(self) -> bool:
        """Whether everything is being mended."""
        return self._over.is_set()

    def end(self) -> None:
        """Let what lasts end now."""
        self._over.set()

    async def before_it_ends(self, work: Awaitable[T], duration_ms: int) -> T | None:
        """Return what some work comes to; None, and the work is given up, if the fault ends first. A frame that is held stays so."""
        task = asyncio.ensure_future(work)
        ending = asyncio.ensure_future(self._ending(duration_ms))
        try:
            await asyncio.wait((task, ending), return_when=asyncio.FIRST_COMPLETED)  # noqa: TID251  (real time: nothing is replayed)
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

    async def while_it_lasts(self, links: Iterable[Link], condition: Condition, duration_ms: int) -> None:
        """Put a condition on links for a while; it bites if it touched something."""
        number = await self.field.impose(links, condition)
        try:
            await self.lasts(duration_ms)
        finally:
            effect = await self.field.lift(number)
        if effect.touched_bytes or effect.connections:
            self.bite(f"{effect.touched_bytes} bytes on {effect.connections} connections")


def links_of(target: str, nodes: Sequence[str]) -> list[Link]:
    """Return the links that a target names. A name that is no node's is a client's: it dials nodes, and nobody dials it.

    Raises KeyError for what looks like a node and is none.
    """
    words = [word for word in re.split(f"{BOTH_WAYS}|{ONE_WAY}|,", target) if not any(sign in word for sign in PATTERN_SIGNS)]
    clients = [word for word in words if word not in nodes and not word.startswith(NODE_PREFIXES)]
    return directions(target, [*nodes, *clients, *([] if clients else [CLIENTS])])

"""Messages of the proxy's control socket: requests, their answers, and notifications that a frame
is held. One JSON object a line.

The proxy reads the nodes that it stands in front of from a file; all other requests come through
the socket, from the harness or `kraftsim up`.
"""

from collections.abc import Callable

import msgspec

from kraftsim.lab.faults.field import Condition, Effect, Link, Watch
from kraftsim.lab.faults.rules_request_faults import RequestFault, RequestFaultStatus, RequestHit


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """A node: the address on which the proxy listens for it, its real address, and the source
    address of its own connections (None: its client id identifies them).

    Bytes to a ZooKeeper server have no frames or client ids: a connection without a known source
    address counts as a client there.
    """

    name: str
    node_id: int
    host: str
    port: int
    behind_host: str
    behind_port: int
    outgoing_host: str | None = None
    client_ids: tuple[str, ...] = ()
    """More client ids of the node, beside those that kraftsim's nodes have."""
    speaks_kafka: bool = True


class ProxyPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of the proxy.

    Frames are parsed only with `follows_frames` or `judges_requests` (faults of requests): it costs
    a look at each of them.
    """

    posts: tuple[Post, ...]
    seed: int = 0
    follows_frames: bool = False
    judges_requests: bool = False


class ProxyState(msgspec.Struct, frozen=True, kw_only=True):
    """What a proxy writes once it listens: its process id, its control port, and the secret that a
    client must send first.
    """

    pid: int
    door: int
    secret: str


class Impose(msgspec.Struct, frozen=True, kw_only=True, tag="impose"):
    """Impose a condition on links. Answered with its number."""

    links: tuple[Link, ...]
    condition: Condition


class Lift(msgspec.Struct, frozen=True, kw_only=True, tag="lift"):
    """End a condition. Answered with its effect."""

    number: int


class LiftAll(msgspec.Struct, frozen=True, kw_only=True, tag="lift_all"):
    """End every condition, or those on links of the nodes that are named.

    Answered with how many ended, as a number.
    """

    nodes: tuple[str, ...] = ()


class Cut(msgspec.Struct, frozen=True, kw_only=True, tag="cut"):
    """Reset the connections over links, or one of them chosen at random.

    Answered with the effect.
    """

    links: tuple[Link, ...]
    only_one: bool = False


class Halve(msgspec.Struct, frozen=True, kw_only=True, tag="halve"):
    """Make each connection over links half-open: see `FaultDriver.halve`.

    Answered with a number, for `Lift`.
    """

    links: tuple[Link, ...]
    believer: str
    gone: str | None = None


class Follow(msgspec.Struct, frozen=True, kw_only=True, tag="follow"):
    """Hold the frame that matches a watch, or what follows it, and send a `FrameHeld`.

    Answered with the watch's number.
    """

    watch: Watch


class Unwatch(msgspec.Struct, frozen=True, kw_only=True, tag="unwatch"):
    """Wait no more."""

    number: int


class Decide(msgspec.Struct, frozen=True, kw_only=True, tag="decide"):
    """Decide about a held frame: 'cut' (after `value` bytes), 'swallow', 'send' (it is only late),
    'repeat' (`value` ms after it has passed).

    None of them releases it: 'pass' does, or 'delay' (by `value` ms).
    """

    hold: int
    action: str
    value: float = 0


class InjectRequestFault(msgspec.Struct, frozen=True, kw_only=True, tag="inject"):
    """Add a fault of requests, and send a `RequestFaultHit` for each request that it takes effect
    on. Answered with its number.
    """

    fault: RequestFault


class EndRequestFault(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """End a fault of requests; nothing, if there is none with this number.

    The answer comes after the hits so far.
    """

    number: int


class ListRequestFaults(msgspec.Struct, frozen=True, kw_only=True, tag="faults"):
    """Answered with all faults of requests and what became of them."""


Order = (
    Impose
    | Lift
    | LiftAll
    | Cut
    | Halve
    | Follow
    | Unwatch
    | Decide
    | InjectRequestFault
    | EndRequestFault
    | ListRequestFaults
)


class ControlEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """A request with a number that the sender chooses, which identifies its answer."""

    id: int
    order: Order


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer", omit_defaults=True):
    """The answer to a request; `trouble` is the reason why nothing was done."""

    id: int
    number: int = 0
    effect: Effect = Effect()
    faults: tuple[RequestFaultStatus, ...] = ()
    trouble: str | None = None


class FrameHeld(msgspec.Struct, frozen=True, kw_only=True, tag="held"):
    """The frame that matched a watch. It is held until a `Decide` releases it."""

    watch: int
    hold: int
    api_key: int
    is_response: bool
    client: str
    server: str
    size_bytes: int
    connection: int
    correlation_id: int


class FrameReport(msgspec.Struct, frozen=True, kw_only=True, tag="told"):
    """The fate of a held frame: its client has 'given up', or a copy was 'answered' with so many
    bytes.
    """

    hold: int
    what: str
    size_bytes: int = 0


class RequestFaultHit(msgspec.Struct, frozen=True, kw_only=True, tag="hit"):
    """A fault of requests has taken effect."""

    number: int
    hit: RequestHit


GIVEN_UP, ANSWERED = "given up", "answered"
News = Answer | FrameHeld | FrameReport | RequestFaultHit
Notify = Callable[[FrameHeld | FrameReport | RequestFaultHit], None]
"""Sends notifications to the client that sent a request."""

"""What is said through the proxy's door: orders, their answers, and the news that a frame is held. One JSON object a line.

The proxy is told what it stands in front of in a file; everything else comes through the door, from the harness or from `kraftsim up`.
"""

from collections.abc import Callable

import msgspec

from kraftsim.faults.field import Condition, Effect, Link, Watch


class Post(msgspec.Struct, frozen=True, kw_only=True):
    """A node: where the proxy listens for it, where it really is, and the address its own connections come from (none: known by its client id).

    What is said to a ZooKeeper server are bytes without frames or names: whoever has no address of its own is a client there.
    """

    name: str
    node_id: int
    host: str
    port: int
    behind_host: str
    behind_port: int
    outgoing_host: str | None = None
    speaks_kafka: bool = True


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that the proxy is told before it starts. Frames are followed only with `follows_frames`: it costs a look at each of them."""

    posts: tuple[Post, ...]
    seed: int = 0
    follows_frames: bool = False


class ProxyState(msgspec.Struct, frozen=True, kw_only=True):
    """What a proxy says of itself once it listens: its process id, the port of its door, and the secret that a client must send first."""

    pid: int
    door: int
    secret: str


class Impose(msgspec.Struct, frozen=True, kw_only=True, tag="impose"):
    """Put a condition on links. Answered with its number."""

    links: tuple[Link, ...]
    condition: Condition


class Lift(msgspec.Struct, frozen=True, kw_only=True, tag="lift"):
    """End a condition. Answered with its effect."""

    number: int


class LiftAll(msgspec.Struct, frozen=True, kw_only=True, tag="lift_all"):
    """End every condition, or those on links of the nodes that are named. Answered with how many they were, as a number."""

    nodes: tuple[str, ...] = ()


class Cut(msgspec.Struct, frozen=True, kw_only=True, tag="cut"):
    """Reset the connections over links, or one that is drawn. Answered with the effect."""

    links: tuple[Link, ...]
    only_one: bool = False


class Halve(msgspec.Struct, frozen=True, kw_only=True, tag="halve"):
    """Let one end of each connection over links be lost without the other knowing: see `Field.halve`. Answered with a number, for `Lift`."""

    links: tuple[Link, ...]
    believer: str
    gone: str | None = None


class Follow(msgspec.Struct, frozen=True, kw_only=True, tag="follow"):
    """Hold the frame that a watch waits for, or what follows it, and send a `FrameHeld`. Answered with the watch's number."""

    watch: Watch


class Unwatch(msgspec.Struct, frozen=True, kw_only=True, tag="unwatch"):
    """Wait no more."""

    number: int


class Decide(msgspec.Struct, frozen=True, kw_only=True, tag="decide"):
    """Say what becomes of a held frame: 'cut' (after `value` bytes), 'swallow', 'send' (it is only late), 'repeat' (`value` ms after it has passed).

    None of them lets it go: 'pass' does, or 'delay' (by `value` ms).
    """

    hold: int
    action: str
    value: float = 0


Order = Impose | Lift | LiftAll | Cut | Halve | Follow | Unwatch | Decide


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """An order with a number of the sender's choice, by which its answer is recognised."""

    id: int
    order: Order


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag="answer", omit_defaults=True):
    """The answer to an order; `trouble` says why nothing was done."""

    id: int
    number: int = 0
    effect: Effect = Effect()
    trouble: str | None = None


class FrameHeld(msgspec.Struct, frozen=True, kw_only=True, tag="held"):
    """The frame that a watch waited for. It waits until a `Decide` lets it pass."""

    watch: int
    hold: int
    api_key: int
    is_response: bool
    client: str
    server: str
    size_bytes: int
    connection: int
    correlation_id: int


class Told(msgspec.Struct, frozen=True, kw_only=True, tag="told"):
    """What became of a frame that is or was held: its client has 'given up', or a copy was 'answered' with so many bytes."""

    hold: int
    what: str
    size_bytes: int = 0


GIVEN_UP, ANSWERED = "given up", "answered"
News = Answer | FrameHeld | Told
Tell = Callable[[FrameHeld | Told], None]
"""Sends news to whoever gave an order."""

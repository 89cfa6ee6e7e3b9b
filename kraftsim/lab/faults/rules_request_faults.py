"""Faults of requests, as rules without I/O: a request in, what becomes of it out.

A `RequestFault` says which requests it is about (API and versions, topic, partition, client,
transactional id, group, node; from the nth of them on, how many, which share, how long) and what
becomes of them: an error instead of an answer, silence, a delay, a second execution, a later place,
fewer bytes, a throttle, the end of the connection. `RequestRules` counts and decides; a node of an
embedded or simulated cluster (`kraftsim.cluster.request_tap`) or the proxy
(`kraftsim.cluster.proxy.request_gate`) carries it out. The error itself is made from the message
definitions (`rules_error_responses`); `request_fault_text` has the form in which people write one.

A request that is dropped, or whose reply is, silences its connection: TCP has no gaps, and a server
that does not answer one request of a connection answers none behind it. The client gives up after
its request time-out and opens another connection.

The rules read no clock and draw no random numbers: times are arguments, in ms of any clock that
does not go back, and the share of the requests that a fault is about is a function of the seed and
of their number. So the same requests get the same faults.
Source: KAFKA-21074 (a fault proxy for Apache Kafka's tests).
"""

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from fnmatch import fnmatchcase
from hashlib import blake2b
from typing import Final

import msgspec

from kraftsim.lab.faults.rules_request_subjects import subjects_of
from protocol.api_keys import ApiKey
from protocol.codec.declaration import pascal_case
from protocol.errors import ErrorCode
from protocol.malformed import MalformedMessage
from protocol.messages.k00_produce import ACKS_NONE
from protocol.schema import Message

CLIENTS: Final = "clients"
"""The sender of requests that are neither a node's nor those of kraftsim's own probes."""
HARNESS: Final = "harness"
"""The sender of requests of kraftsim itself, which looks after a cluster."""
OWN_CLIENT_IDS: Final = tuple(
    f"kraftsim-{role}" for role in ("admin", "features", "probe", "quorum", "voters")
)
"""The client ids of these."""
FETCHER: Final = re.compile(r"broker-(\d+)-(?:fetcher-\d+|txn-marker-sender|add-partitions-to-txn)")
"""The client ids of a broker in connections to other brokers: as a follower, as a coordinator that
writes transaction markers, and as a leader that asks whether a transaction has a partition.
"""
SIZE_FIELD_BYTES: Final = 4
"""The size field of a frame, which `after_bytes` counts too."""
TRUNCATED_BYTES_MIN: Final = 8
"""The least that is left of a truncated frame: its size field, and the correlation id of a reply,
or API and version of a request.
"""
RECENT_HITS: Final = 10
"""So many of its last hits a status has."""
FINISHED_KEPT: Final = 1000
"""So many faults that are over a status has, the latest."""


class RequestAction(Enum):
    """What becomes of a request; `done` of the fault says whether the node serves it first."""

    ERROR = "error"
    """It is not served, or with `done` it is, and the client does not learn it; the answer has an
    error code.
    """
    DROP = "drop"
    """It, or its reply, does not arrive, and nothing behind it on its connection."""
    DELAY = "delay"
    """It, or its reply, arrives `delay_ms` later, and everything behind it on its connection."""
    DUPLICATE = "duplicate"
    """It is served twice, the copy `delay_ms` later; the answer to the copy is discarded."""
    DISCONNECT = "disconnect"
    """Its connection ends instead of an answer; with `after_bytes` the receiver (the node, or with
    `done` the client) gets exactly so many bytes of the frame before, or all if it has fewer.
    """
    REORDER = "reorder"
    """It, or its reply, waits, and everything behind it on its connection, until `overtaken_by`
    requests of its API, or replies to such, have passed at its node on other connections of the
    fault's sender; `wait_ms` at most, if that is not 0.
    """
    TRUNCATE = "truncate"
    """The frame ends after `after_bytes` bytes, and its size field says so: a message that ends too
    early in a frame that is whole. The connection stays open. A shorter frame passes unchanged.
    """
    BLACKHOLE = "blackhole"
    """The connections of its client carry nothing in either direction, present and future ones, and
    stay open; what they hold is delivered when the fault ends. A fault that names neither API nor
    subject is about all clients that match, at once.
    """
    THROTTLE = "throttle"
    """With `throttle_ms` it is served, the answer has this throttle_time_ms (unless it has a longer
    one), and the node reads no more of its connection for so long, as after a quota (KIP-219). With
    `bytes_per_second` it, or its reply, takes as long as its bytes take at this rate.
    """


ANY_ACTION: Final = frozenset(RequestAction)
MEANT_FOR: Final[Mapping[str, frozenset[RequestAction]]] = {
    "done": ANY_ACTION - {RequestAction.DUPLICATE, RequestAction.BLACKHOLE},
    "error": frozenset({RequestAction.ERROR}),
    "delay_ms": frozenset({RequestAction.DELAY, RequestAction.DUPLICATE}),
    "wait_ms": frozenset({RequestAction.REORDER}),
    "overtaken_by": frozenset({RequestAction.REORDER}),
    "after_bytes": frozenset({RequestAction.DISCONNECT, RequestAction.TRUNCATE}),
    "throttle_ms": frozenset({RequestAction.THROTTLE}),
    "bytes_per_second": frozenset({RequestAction.THROTTLE}),
}
"""The actions that a field is for; all others are for any."""


class RequestFault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault: `action` for the `nth` request that matches, and for `times` of them from there on
    (None: all); of those only for a `share`, 0 to 1, chosen by the seed. It ends by itself
    `duration_ms` after it was added (None: not). None in a field of the match means any.

    `api` is the key of an API; `version_min` and `version_max` are the first and last version of
    its requests. `client_id`, `transactional_id`, `group` and `node` may be patterns with `*`. A
    request that names several topics or partitions matches if one of them does, and is treated as a
    whole. `topic_id` is that of `topic`, as hex, for versions in which requests name the id alone.
    `sender` is CLIENTS, the name of a node or a pattern of such names, or None for any.

    Raises ValueError for what makes no sense, such as a delay of 0 ms.
    """

    action: RequestAction
    done: bool = False
    error: int = 0
    delay_ms: float = 0
    wait_ms: float = 0
    overtaken_by: int = 1
    after_bytes: int | None = None
    throttle_ms: int = 0
    bytes_per_second: int = 0
    api: int | None = None
    version_min: int | None = None
    version_max: int | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    client_id: str | None = None
    transactional_id: str | None = None
    group: str | None = None
    node: str | None = None
    sender: str | None = CLIENTS
    nth: int = 1
    times: int | None = 1
    share: float = 1
    duration_ms: float | None = None

    def __post_init__(self) -> None:
        _require_fields_of_action(self)
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise ValueError("nth and times count from 1")
        if not 0 < self.share <= 1:
            raise ValueError("share is above 0 and at most 1")
        if self.duration_ms is not None and self.duration_ms <= 0:
            raise ValueError("duration_ms is longer than 0 ms")
        if self.api is not None:
            ApiKey(self.api)
        if self.version_min is not None or self.version_max is not None:
            if self.api is None:
                raise ValueError("a version needs its API")
            if (self.version_min or 0) > (32767 if self.version_max is None else self.version_max):
                raise ValueError("version_min is at most version_max")
        if self.partition is not None and self.topic is None:
            raise ValueError("a partition needs its topic")

    def __str__(self) -> str:
        """The fault in words, for events: `error CONCURRENT_TRANSACTIONS for EndTxn`."""
        what = self.action.value
        if self.action is RequestAction.ERROR:
            what = f"{what} {error_name(self.error)}{' when done' if self.done else ''}"
        elif self.action not in (RequestAction.DUPLICATE, RequestAction.BLACKHOLE):
            what = f"{what} {'reply' if self.done or self.throttle_ms else 'request'}"
        return f"{what} for {'any API' if self.api is None else api_name(self.api)}"

    @property
    def is_of_replies(self) -> bool:
        """Whether the node serves the request first."""
        return self.done or self.throttle_ms > 0

    @property
    def is_standing(self) -> bool:
        """Whether it is a black hole for all clients that match, whatever they send."""
        return (
            self.action is RequestAction.BLACKHOLE
            and self.api is None
            and self.topic is None
            and self.transactional_id is None
            and self.group is None
            and self.nth == 1
            and self.share == 1
        )


def _require_fields_of_action(fault: RequestFault) -> None:
    """Raise ValueError for a field that is not the action's, or lacks."""
    action = fault.action
    for name in MEANT_FOR:
        is_given = getattr(fault, name) != _DEFAULTS[name]
        if is_given and action not in MEANT_FOR[name]:
            fitting = " and ".join(sorted(each.value for each in MEANT_FOR[name]))
            raise ValueError(f"{name} is not for {action.value}: it is for {fitting}")
    for name in ("delay_ms", "wait_ms", "throttle_ms", "bytes_per_second"):
        if getattr(fault, name) < 0:
            raise ValueError(f"{name} is not below 0")
    match action:
        case RequestAction.ERROR if fault.error == 0:
            raise ValueError("NONE is no error: an error fault has the code of another one")
        case RequestAction.DELAY if fault.delay_ms <= 0:
            raise ValueError("a delay is longer than 0 ms")
        case RequestAction.REORDER if fault.overtaken_by < 1:
            raise ValueError("overtaken_by is 1 or more")
        case RequestAction.TRUNCATE if fault.after_bytes is None:
            raise ValueError("truncate needs after_bytes: how many bytes of the frame are left")
        case RequestAction.TRUNCATE if (fault.after_bytes or 0) < TRUNCATED_BYTES_MIN:
            raise ValueError(f"a truncated frame has {TRUNCATED_BYTES_MIN} bytes or more")
        case RequestAction.DISCONNECT if (fault.after_bytes or 0) < 0:
            raise ValueError("after_bytes is not below 0")
        case RequestAction.THROTTLE if (fault.throttle_ms > 0) == (fault.bytes_per_second > 0):
            raise ValueError("throttle needs one of throttle_ms and bytes_per_second")
        case RequestAction.THROTTLE if fault.throttle_ms and fault.done:
            raise ValueError("throttle_ms is always about the reply: leave out done")


_DEFAULTS: Final = {
    each.name: each.default for each in msgspec.structs.fields(RequestFault) if not each.required
}


class SeenRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that has arrived at a node; `body` decodes it, which only some faults need.

    `body` raises MalformedMessage or UnknownVersion.
    """

    node: str
    sender: str
    api_key: int
    api_version: int
    client_id: str | None
    body: Callable[[], Message]
    topic_name: Callable[[bytes], str | None] | None = None
    """Returns the name of a topic id, where the names are known; else `topic_id` of the fault is
    compared.
    """
    is_answered: bool = False
    """Whether the node serves it already, so that there is an answer to come."""


class RequestHit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request that a fault has taken effect on."""

    node: str
    api: str
    api_version: int
    client_id: str | None = None

    @classmethod
    def of(cls, request: SeenRequest) -> "RequestHit":
        """Return the hit of a request."""
        return cls(
            node=request.node,
            api=api_name(request.api_key),
            api_version=request.api_version,
            client_id=request.client_id,
        )

    def __str__(self) -> str:
        return f"{self.api} v{self.api_version} of client {self.client_id!r} at {self.node}"


class RequestFaultStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A fault and what became of it: how many requests have matched, on how many it took effect,
    the last of these (`recent_hits`, oldest first), and whether it is over.

    One that is not over yet may still have no request to wait for: `matched` says so.
    """

    number: int
    fault: RequestFault
    matched: int
    effects: int
    is_over: bool
    recent_hits: tuple[RequestHit, ...] = ()


@dataclass(frozen=True, slots=True)
class Decided:
    """The fault that a request gets: the number of its rule; `answer` is the response of an
    error.
    """

    number: int
    fault: RequestFault
    answer: Message | None = None


@dataclass(eq=False, slots=True)
class _Rule:
    number: int
    fault: RequestFault
    key: str
    ends_ms: float | None
    matched: int = 0
    decided: int = 0
    effects: int = 0
    hits: deque[RequestHit] = field(default_factory=lambda: deque(maxlen=RECENT_HITS))
    caught: dict[str, None] = field(default_factory=dict)
    """The client ids that a black hole has caught."""
    on_over: dict[int, Callable[[], object]] = field(default_factory=dict)

    @property
    def is_used_up(self) -> bool:
        return self.fault.times is not None and self.decided >= self.fault.times


@dataclass(eq=False, slots=True)
class _Waiting:
    """A request, or reply, that others shall overtake."""

    rule: _Rule
    node: str
    api_key: int
    connection: object
    left: int
    then: Callable[[bool], object]


@dataclass(eq=False, slots=True)
class RequestRules:
    """All faults of requests of a cluster. `seed` chooses the requests of a fault with a share;
    `on_black_hole` is called with the number of a fault that begins to hold connections.
    """

    seed: int = 0
    on_black_hole: Callable[[int], None] | None = None
    has_black_holes: bool = False
    """Whether a fault may hold whole connections. Like the next, a field that is read for each
    frame.
    """
    has_waiting: bool = False
    """Whether a request waits until others have overtaken it: then `passed` is to be called."""
    on_late_fault: Callable[[int], None] | None = None
    """Is called with the number of a fault of replies that is also about requests in progress."""
    watched_apis: frozenset[int] | None = frozenset()
    """The APIs whose requests a fault may be about, now or while they are served; None: any."""
    _active: dict[int, _Rule] = field(default_factory=dict)
    """Those that may still take effect on a request."""
    _black_holes: dict[int, _Rule] = field(default_factory=dict)
    _finished: dict[int, _Rule] = field(default_factory=dict)
    _waiting: dict[int, _Waiting] = field(default_factory=dict)
    _expected_apis: dict[int | None, None] = field(default_factory=dict)
    _next_number: int = 1
    _next_call: int = 1

    @property
    def next_number(self) -> int:
        """The number of the next fault that is added."""
        return self._next_number

    @property
    def is_empty(self) -> bool:
        """Whether no fault waits for a request, holds a connection, or a request for others."""
        return not self._active and not self._black_holes and not self._waiting

    def may_concern(self, api_key: int) -> bool:
        """Return whether a fault is about requests of an API."""
        return any(rule.fault.api in (None, api_key) for rule in self._active.values())

    def expect(self, fault: RequestFault) -> None:
        """A fault of replies may come that is also about requests that are served at that moment:
        those of its API are watched from now on.
        """
        self._expected_apis[fault.api] = None
        self._look()

    def add(
        self,
        fault: RequestFault,
        now_ms: float,
        *,
        key: str | None = None,
        in_progress: bool = False,
    ) -> int:
        """Add a fault; return its number. The caller calls `expire` at the end of its duration.

        `key` names its random numbers, by default its number does: a key that does not depend on
        other faults keeps the choice when those are left out. With `in_progress` a fault of replies
        is also about requests that are served now.
        """
        number, self._next_number = self._next_number, self._next_number + 1
        ends_ms = None if fault.duration_ms is None else now_ms + fault.duration_ms
        rule = _Rule(number, fault, str(number) if key is None else key, ends_ms)
        if fault.action is RequestAction.BLACKHOLE:
            self._black_holes[number] = rule
            self.has_black_holes = True
        if not fault.is_standing:
            self._active[number] = rule
        self._look()
        if fault.is_standing and self.on_black_hole is not None:
            self.on_black_hole(number)
        if in_progress and fault.is_of_replies and self.on_late_fault is not None:
            self.on_late_fault(number)
        return number

    def remove(self, number: int) -> None:
        """End a fault: it decides no more, and what it holds goes on. Nothing, if it is over."""
        rule = self._active.pop(number, None) or self._black_holes.get(number)
        self._black_holes.pop(number, None)
        self.has_black_holes = bool(self._black_holes)
        self._look()
        if rule is not None:
            self._keep_finished(rule)
        for each in [each for each, held in self._waiting.items() if held.rule.number == number]:
            self._end_wait(each).then(False)
        if rule is not None:
            calls, rule.on_over = list(rule.on_over.values()), {}
            for call in calls:
                call()

    def fault_of(self, number: int) -> RequestFault | None:
        """Return the fault with a number; None if there is none, or it was over long ago."""
        rule = self._rule(number)
        return None if rule is None else rule.fault

    def clear(self) -> None:
        """End all faults."""
        held = [waiting.rule.number for waiting in self._waiting.values()]
        for number in list(dict.fromkeys((*self._active, *self._black_holes, *held))):
            self.remove(number)

    def expire(self, now_ms: float) -> None:
        """End the faults whose duration is over."""
        rules = {
            **self._active,
            **self._black_holes,
            **{waiting.rule.number: waiting.rule for waiting in self._waiting.values()},
        }
        for number, rule in rules.items():
            if _has_ended(rule, now_ms):
                self.remove(number)

    def status(self, now_ms: float) -> tuple[RequestFaultStatus, ...]:
        """Return all faults in the order of their numbers, and the last 1,000 that are over."""
        rules = {**self._finished, **self._active, **self._black_holes}
        return tuple(
            RequestFaultStatus(
                number=number,
                fault=rule.fault,
                matched=rule.matched,
                effects=rule.effects,
                is_over=number in self._finished or _has_ended(rule, now_ms),
                recent_hits=tuple(rule.hits),
            )
            for number, rule in sorted(rules.items())
        )

    def decide(
        self, request: SeenRequest, now_ms: float, *, since: int | None = None
    ) -> Decided | None:
        """Count a request, and return the fault that it gets: the first that is due. None: it is
        served.

        With `since` it is in progress: only the faults of replies from that number on are about it.
        """
        chosen = None
        for number, rule in list(self._active.items()):
            if _has_ended(rule, now_ms) or (
                since is not None and (number < since or not rule.fault.is_of_replies)
            ):
                continue
            answer = _fits(rule.fault, request)
            if answer is False:
                continue
            rule.matched += 1
            if chosen is None and rule.matched >= rule.fault.nth and self._chooses(rule):
                chosen = Decided(number, rule.fault, None if answer is True else answer)
                rule.decided += 1
                if rule.fault.action is RequestAction.BLACKHOLE:
                    rule.caught[request.client_id or ""] = None
                    if self.on_black_hole is not None:
                        self.on_black_hole(number)
                if rule.is_used_up:
                    del self._active[number]
                    self._look()
                    if number not in self._black_holes:
                        self._keep_finished(rule)
        return chosen

    def took_effect(self, number: int, hit: RequestHit) -> None:
        """Count a request on which a fault took effect."""
        rule = self._rule(number)
        if rule is not None:
            rule.matched += rule.fault.is_standing
            rule.effects += 1
            rule.hits.append(hit)

    # Black holes
    # ----------------------------------------------------------------------------------------------

    def black_hole_of(
        self, node: str, sender: str, client_id: str | None, now_ms: float
    ) -> int | None:
        """Return the number of the fault that lets a connection to a node carry nothing; None if it
        carries bytes. `client_id` is that of its last request.
        """
        for number, rule in self._black_holes.items():
            if _has_ended(rule, now_ms) or not _is_from(rule.fault, node, sender, client_id):
                continue
            if rule.fault.is_standing or (client_id or "") in rule.caught:
                return number
        return None

    def when_over(self, number: int, call: Callable[[], object]) -> Callable[[], None]:
        """Call a function when a fault ends, at once if it has; return what takes that back."""
        rule = self._active.get(number) or self._black_holes.get(number)
        if rule is None:
            call()
            return _nothing
        key, self._next_call = self._next_call, self._next_call + 1
        rule.on_over[key] = call

        def take_back() -> None:
            rule.on_over.pop(key, None)

        return take_back

    # Order
    # ----------------------------------------------------------------------------------------------

    def wait_for_others(
        self, number: int, request: SeenRequest, connection: object, then: Callable[[bool], object]
    ) -> Callable[[], None]:
        """Let a request, or its reply, wait until others of its API have passed at its node on
        other connections: `then` is called with True; with False when the fault ends before.

        Return what ends the wait without a call.
        """
        rule = self._active.get(number) or self._finished[number]
        key, self._next_call = self._next_call, self._next_call + 1
        self._waiting[key] = _Waiting(
            rule, request.node, request.api_key, connection, rule.fault.overtaken_by, then
        )
        self.has_waiting = True
        self._look()

        def give_up() -> None:
            if key in self._waiting:
                self._end_wait(key)

        return give_up

    def passed(
        self, node: str, sender: str, api_key: int, connection: object, *, is_reply: bool
    ) -> None:
        """A request was handed to a node, or its reply to the client: it may have overtaken
        others.
        """
        for key, waiting in list(self._waiting.items()):
            fault = waiting.rule.fault
            if (
                fault.done == is_reply
                and (waiting.node, waiting.api_key) == (node, api_key)
                and _is_sender(sender, fault.sender)
                and waiting.connection is not connection
                and key in self._waiting
            ):
                waiting.left -= 1
                if not waiting.left:
                    self._end_wait(key).then(True)

    # ----------------------------------------------------------------------------------------------

    def _end_wait(self, key: int) -> _Waiting:
        waiting = self._waiting.pop(key)
        self.has_waiting = bool(self._waiting)
        self._look()
        return waiting

    def _look(self) -> None:
        """Note which APIs are watched: whole connections, and requests that others overtake, need
        all of them.
        """
        apis = dict.fromkeys(rule.fault.api for rule in self._active.values()) | self._expected_apis
        self.watched_apis = (
            None
            if self._black_holes or self._waiting or None in apis
            else frozenset(api for api in apis if api is not None)
        )

    def _rule(self, number: int) -> _Rule | None:
        return (
            self._active.get(number) or self._black_holes.get(number) or self._finished.get(number)
        )

    def _chooses(self, rule: _Rule) -> bool:
        share = rule.fault.share
        if share >= 1:
            return True
        digest = blake2b(f"{self.seed} {rule.key} {rule.matched}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) < share * 2**64

    def _keep_finished(self, rule: _Rule) -> None:
        self._finished[rule.number] = rule
        while len(self._finished) > FINISHED_KEPT:
            del self._finished[min(self._finished)]


def _has_ended(rule: _Rule, now_ms: float) -> bool:
    return rule.ends_ms is not None and now_ms >= rule.ends_ms


def _nothing() -> None:
    """Take nothing back."""


# --------------------------------------------------------------------------------------------------
# Matching


def _fits(fault: RequestFault, request: SeenRequest) -> Message | bool:
    """Return whether a request matches; of an error its answer, if there is one."""
    if (
        fault.api not in (None, request.api_key)
        or not _is_version(fault, request.api_version)
        or not _is_from(fault, request.node, request.sender, request.client_id)
    ):
        return False
    try:
        return _fits_body(fault, request)
    except (MalformedMessage, ValueError, KeyError):
        return False  # the node refuses it


def _is_from(fault: RequestFault, node: str, sender: str, client_id: str | None) -> bool:
    return (
        _is_sender(sender, fault.sender)
        and _is_like(node, fault.node)
        and _is_like(client_id or "", fault.client_id)
    )


def _is_sender(name: str, pattern: str | None) -> bool:
    return pattern in (None, name) or (
        pattern is not None and "*" in pattern and fnmatchcase(name, pattern)
    )


def _is_version(fault: RequestFault, version: int) -> bool:
    return (fault.version_min is None or version >= fault.version_min) and (
        fault.version_max is None or version <= fault.version_max
    )


def _fits_body(fault: RequestFault, request: SeenRequest) -> Message | bool:
    if not (is_about(fault, request.body, request.topic_name) and _has_answer(fault, request)):
        return False
    if fault.action is not RequestAction.ERROR:
        return True
    # It needs the definitions of messages, and so construct, which a cluster without such a fault
    # does not import.
    from kraftsim.lab.faults.rules_error_responses import error_response

    answer = error_response(request.api_key, request.api_version, request.body(), fault.error)
    return answer if answer is not None else False


def is_about(
    fault: RequestFault,
    body: Callable[[], Message],
    topic_name: Callable[[bytes], str | None] | None = None,
) -> bool:
    """Return whether a request names what a fault is about."""
    if fault.topic is None and fault.transactional_id is None and fault.group is None:
        return True
    subjects = subjects_of(body())
    if fault.topic is not None and not any(
        _is_topic(topic, fault, topic_name)
        and (fault.partition in (None, partition) or partition is None)
        for topic, partition in subjects.partitions
    ):
        return False
    return _one_is_like(subjects.transactional_ids, fault.transactional_id) and _one_is_like(
        subjects.groups, fault.group
    )


def _is_topic(
    topic: str | bytes, fault: RequestFault, topic_name: Callable[[bytes], str | None] | None
) -> bool:
    if isinstance(topic, str):
        return topic == fault.topic
    return topic.hex() == fault.topic_id or (
        topic_name is not None and topic_name(topic) == fault.topic
    )


def _one_is_like(names: list[str], pattern: str | None) -> bool:
    return pattern is None or any(_is_like(name, pattern) for name in names)


def _is_like(name: str, pattern: str | None) -> bool:
    return pattern is None or fnmatchcase(name, pattern)


def _has_answer(fault: RequestFault, request: SeenRequest) -> bool:
    """Return whether there is the answer that the fault is about: Produce with acks=0 has none, and
    some have no throttle time.
    """
    if fault.throttle_ms:
        from kraftsim.lab.faults.rules_error_responses import has_throttle_time  # as above

        if not has_throttle_time(request.api_key, request.api_version):
            return False
    is_about_answer = fault.is_of_replies or fault.action is RequestAction.ERROR
    if not is_about_answer or request.api_key != ApiKey.PRODUCE or request.is_answered:
        return True
    return getattr(request.body(), "acks", ACKS_NONE) != ACKS_NONE


# --------------------------------------------------------------------------------------------------
# Names


def sender_of(client_id: str | None, names: Mapping[str, str]) -> str:
    """Return who sends requests with a client id: a node (`names` has those of
    `client_ids_of_node`), HARNESS, or CLIENTS.
    """
    if client_id is None:
        return CLIENTS
    fetcher = FETCHER.fullmatch(client_id)
    node = names.get(fetcher[1] if fetcher is not None else client_id)
    if node is not None:
        return node
    return HARNESS if client_id in OWN_CLIENT_IDS else CLIENTS


def client_ids_of_node(node_id: int) -> tuple[str, str]:
    """Return the client ids that a node has: towards controllers and brokers, and as a replica of
    the quorum.
    """
    return str(node_id), f"raft-client-{node_id}"


def api_name(api: int) -> str:
    """Return Kafka's name of an API: `EndTxn`."""
    return pascal_case(ApiKey(api).name.lower())


def api_key_of(api: str | int) -> int:
    """Return the key of an API by its name in Kafka (`EndTxn`, `END_TXN`) or its number.

    Raises ValueError that says what is near.
    """
    if isinstance(api, int):
        return int(ApiKey(api))
    plain = {key.name.replace("_", ""): key for key in ApiKey}
    wanted = api.replace("_", "").upper().removesuffix("REQUEST")
    if wanted in plain:
        return int(plain[wanted])
    near = [api_name(plain[each]) for each in get_close_matches(wanted, plain, 3)]
    raise ValueError(f"{api} is no API of Kafka{_did_you_mean(near)}")


def error_code_of(error: str | int) -> int:
    """Return an error code by its name in Kafka (`CONCURRENT_TRANSACTIONS`) or its number.

    Raises ValueError that says what is near.
    """
    if isinstance(error, int):
        return int(error)
    if error in ErrorCode.__members__:
        return int(ErrorCode[error])
    near = get_close_matches(error.upper(), ErrorCode.__members__, 3)
    raise ValueError(f"{error} is no error code of Kafka{_did_you_mean(near)}")


def error_name(error: int) -> str:
    """Return Kafka's name of an error code, or its number if it has none."""
    return next((code.name for code in ErrorCode if code == error), str(error))


def _did_you_mean(near: list[str]) -> str:
    return f": did you mean {' or '.join(near)}?" if near else ""

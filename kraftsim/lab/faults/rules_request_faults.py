"""Faults of requests, as rules without I/O: a request in, what becomes of it out.

A `RequestFault` says which requests it is about (API, topic, partition, client, transactional id,
group, node; the nth of them, and how many) and what becomes of them: an error instead of an answer,
silence, a delay, a second execution, the end of the connection. `RequestRules` counts and decides;
a node of an embedded cluster (`kraftsim.cluster.request_tap`) or the proxy
(`kraftsim.cluster.proxy.request_gate`) carries it out. The error itself is made from the message
definitions (`rules_error_responses`).

A request that is dropped, or whose reply is, silences its connection: TCP has no gaps, and a server
that does not answer one request of a connection answers none behind it. The client gives up after
its request time-out and opens another connection.
Source: KAFKA-21074 (a fault proxy for Apache Kafka's tests).
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final

import msgspec

from kraftsim.lab.faults.rules_error_responses import error_response
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
FETCHER: Final = re.compile(r"broker-(\d+)-fetcher-\d+")
"""The client id of a broker in connections to the leader of a partition that it replicates."""
TRANSACTION_KEY: Final = 1
"""The key type of FindCoordinator that asks for a transactional id."""
NO_ID: Final = bytes(16)


class RequestAction(Enum):
    """What becomes of a request; `done` of the fault says whether the node serves it first."""

    ERROR = "error"
    """It is not served; the answer has an error code."""
    DROP = "drop"
    """It, or its reply, does not arrive, and nothing behind it on its connection."""
    DELAY = "delay"
    """It, or its reply, arrives later, and everything behind it on its connection."""
    DUPLICATE = "duplicate"
    """It is served twice; the answer to the copy is discarded."""
    DISCONNECT = "disconnect"
    """Its connection ends instead of an answer."""


class RequestFault(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fault: `action` for the `nth` request that matches, and for `times` of them from there on
    (None: all). None in a field of the match means any.

    `client_id`, `transactional_id`, `group` and `node` may be patterns with `*`. A request that
    names several topics or partitions matches if one of them does, and is treated as a whole.
    `topic_id` is that of `topic`, as hex, for versions in which requests name the id alone.
    `sender` is CLIENTS, the name of a node, or None for any.
    """

    action: RequestAction
    done: bool = False
    error: int = 0
    delay_ms: float = 0
    api: int | None = None
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

    def __post_init__(self) -> None:
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise ValueError("nth and times count from 1")
        if self.action is RequestAction.DELAY and self.delay_ms <= 0:
            raise ValueError("a delay is longer than 0 ms")

    def __str__(self) -> str:
        """The fault in words, for events: `error CONCURRENT_TRANSACTIONS for EndTxn`."""
        what = self.action.value
        if self.action is RequestAction.ERROR:
            what = f"{what} {_error_name(self.error)}"
        elif self.action is not RequestAction.DUPLICATE:
            what = f"{what} {'reply' if self.done else 'request'}"
        return f"{what} for {'any API' if self.api is None else api_name(self.api)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """A request that has arrived at a node; `body` decodes it, which only some faults need.

    `body` raises MalformedMessage or UnknownVersion.
    """

    node: str
    sender: str
    api_key: int
    api_version: int
    client_id: str | None
    body: Callable[[], Message]


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
    fault: RequestFault
    matched: int = 0
    left: int | None = None


@dataclass(eq=False, slots=True)
class RequestRules:
    """All faults of requests of a cluster."""

    _rules: dict[int, _Rule] = field(default_factory=dict)
    _next_number: int = 1

    @property
    def is_empty(self) -> bool:
        """Whether no fault waits for a request."""
        return not self._rules

    def may_concern(self, api_key: int) -> bool:
        """Return whether a fault is about requests of an API."""
        return any(rule.fault.api in (None, api_key) for rule in self._rules.values())

    def add(self, fault: RequestFault) -> int:
        """Add a fault; return its number."""
        number, self._next_number = self._next_number, self._next_number + 1
        self._rules[number] = _Rule(fault, left=fault.times)
        return number

    def remove(self, number: int) -> None:
        """Decide no more for a fault; nothing, if it is over."""
        self._rules.pop(number, None)

    def clear(self) -> None:
        """Remove all faults."""
        self._rules.clear()

    def decide(self, request: SeenRequest) -> Decided | None:
        """Count a request, and return the fault that it gets: the first that is due. None: it is
        served.
        """
        chosen = None
        for number, rule in list(self._rules.items()):
            answer = self._fits(rule.fault, request)
            if answer is False:
                continue
            rule.matched += 1
            if chosen is None and rule.matched >= rule.fault.nth:
                chosen = Decided(number, rule.fault, None if answer is True else answer)
                if rule.left is not None:
                    rule.left -= 1
                    if not rule.left:
                        del self._rules[number]
        return chosen

    def _fits(self, fault: RequestFault, request: SeenRequest) -> Message | bool:
        """Return whether a request matches; of an error its answer, if there is one."""
        if (
            fault.api not in (None, request.api_key)
            or fault.sender not in (None, request.sender)
            or not _is_like(request.node, fault.node)
            or not _is_like(request.client_id or "", fault.client_id)
        ):
            return False
        try:
            return self._fits_body(fault, request)
        except (MalformedMessage, ValueError, KeyError):
            return False  # the node refuses it

    def _fits_body(self, fault: RequestFault, request: SeenRequest) -> Message | bool:
        if not (is_about(fault, request.body) and _has_answer(fault, request)):
            return False
        if fault.action is not RequestAction.ERROR:
            return True
        answer = error_response(request.api_key, request.api_version, request.body(), fault.error)
        return answer if answer is not None else False


def is_about(fault: RequestFault, body: Callable[[], Message]) -> bool:
    """Return whether a request names what a fault is about."""
    if fault.topic is None and fault.transactional_id is None and fault.group is None:
        return True
    subjects = subjects_of(body())
    if fault.topic is not None and not any(
        _is_topic(topic, fault) and (fault.partition in (None, partition) or partition is None)
        for topic, partition in subjects.partitions
    ):
        return False
    return _one_is_like(subjects.transactional_ids, fault.transactional_id) and _one_is_like(
        subjects.groups, fault.group
    )


def _is_topic(topic: str | bytes, fault: RequestFault) -> bool:
    return topic.hex() == fault.topic_id if isinstance(topic, bytes) else topic == fault.topic


def _one_is_like(names: list[str], pattern: str | None) -> bool:
    return pattern is None or any(_is_like(name, pattern) for name in names)


def _is_like(name: str, pattern: str | None) -> bool:
    return pattern is None or fnmatchcase(name, pattern)


def _has_answer(fault: RequestFault, request: SeenRequest) -> bool:
    """Return whether there is the answer that the fault is about: Produce with acks=0 has none."""
    is_about_answer = fault.done or fault.action is RequestAction.ERROR
    if not is_about_answer or request.api_key != ApiKey.PRODUCE:
        return True
    return getattr(request.body(), "acks", ACKS_NONE) != ACKS_NONE


# --------------------------------------------------------------------------------------------------
# What a request names


@dataclass(frozen=True, slots=True)
class Subjects:
    """What a request is about. A topic is its name, or its id where the request has only that; a
    partition is None if the request names the whole topic.
    """

    partitions: list[tuple[str | bytes, int | None]] = field(default_factory=list)
    transactional_ids: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)


def subjects_of(body: Message) -> Subjects:
    """Return what a request of any API names."""
    found = Subjects()
    _collect(body, found, in_topics=False)
    return found


def _collect(part: object, found: Subjects, *, in_topics: bool) -> None:
    topic = _topic_of(part, in_topics=in_topics)
    indexes = [] if topic is None else list(_indexes(part))
    if topic is not None:
        found.partitions.extend((topic, index) for index in indexes or (None,))
    for name in _field_names(part):
        value = getattr(part, name)
        if isinstance(value, list):
            _collect_list(name, value, found)
        elif isinstance(value, str):
            _collect_name(name, value, part, found)
        elif _is_structure(value):
            _collect(value, found, in_topics=False)


def _collect_list(name: str, values: list[object], found: Subjects) -> None:
    is_about_topics = "topic" in name
    for value in values:
        if _is_structure(value):
            _collect(value, found, in_topics=is_about_topics)
        elif isinstance(value, str):
            if name in ("topic_names", "subscribed_topic_names"):
                found.partitions.append((value, None))
            elif name == "transactional_ids":
                found.transactional_ids.append(value)
            elif name in ("groups", "group_ids", "groups_names"):
                found.groups.append(value)
            elif name == "coordinator_keys":
                found.groups.append(value)
                found.transactional_ids.append(value)


def _collect_name(name: str, value: str, part: object, found: Subjects) -> None:
    if name.endswith("transactional_id"):
        found.transactional_ids.append(value)
    elif name == "group_id":
        found.groups.append(value)
    elif name == "key" and hasattr(part, "key_type"):  # FindCoordinator before version 4
        is_transaction = part.key_type == TRANSACTION_KEY
        (found.transactional_ids if is_transaction else found.groups).append(value)


def _topic_of(part: object, *, in_topics: bool) -> str | bytes | None:
    for name in ("topic", "topic_name", *(("name",) if in_topics else ())):
        value = getattr(part, name, None)
        if isinstance(value, str) and value:
            return value
    topic_id = getattr(part, "topic_id", NO_ID)
    return topic_id if isinstance(topic_id, bytes) and topic_id != NO_ID else None


def _indexes(part: object) -> Iterator[int]:
    """Yield the partitions of a topic of a request."""
    for name in _field_names(part):
        value = getattr(part, name)
        if name in ("partition", "partition_index") and isinstance(value, int):
            yield value
        elif "partition" in name and isinstance(value, list):
            for each in value:
                if isinstance(each, int):
                    yield each
                    continue
                for key in ("partition_index", "partition", "index"):
                    index = getattr(each, key, None)
                    if isinstance(index, int):
                        yield index
                        break


def _field_names(part: object) -> tuple[str, ...]:
    return tuple(getattr(type(part), "__slots__", ()))


def _is_structure(value: object) -> bool:
    return "_tags" in _field_names(value)


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


def _error_name(error: int) -> str:
    return next((code.name for code in ErrorCode if code == error), str(error))


def _did_you_mean(near: list[str]) -> str:
    return f": did you mean {' or '.join(near)}?" if near else ""

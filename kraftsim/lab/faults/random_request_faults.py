"""Draws faults of requests for any scenario: for each API of its fault space every action, and the
errors that a server of Apache Kafka can answer there.

The draw has a random stream of its own, so that the other faults of a seed stay as they are. Like
these, a run omits some APIs and some actions. A request fault begins at a time, or at an event or
a state of a node; then it is also about the requests that are served at that moment, so that the
reply is lost of the very request that has changed something.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kraftsim.lab.faults.fault import (
    AtTime,
    Between,
    Fault,
    OnDisk,
    OneOf,
    OnEvent,
    OnFrame,
    OnState,
    Trigger,
    Value,
)
from kraftsim.lab.faults.fault_space import (
    BROKER_APIS,
    BROKERS,
    CLIENTS,
    CONTROLLERS,
    FORWARDED_APIS,
    QUORUM_APIS,
    READER_APIS,
    REPLICATION_APIS,
    TRANSACTION_APIS,
    WRITER_APIS,
    Api,
    FaultMoment,
    FaultSpace,
)
from kraftsim.lab.faults.kinds.request_faults import HERE, KIND, TEXT
from kraftsim.lab.faults.kinds.requests import COPIED_AT_ONCE
from kraftsim.lab.faults.possible_errors import PossibleError, possible_errors
from kraftsim.lab.faults.random_faults import draw_value
from kraftsim.lab.faults.request_fault_text import request_fault_text
from kraftsim.lab.faults.rules_request_faults import CLIENTS as CLIENT_SENDERS
from kraftsim.lab.faults.rules_request_faults import RequestAction, RequestFault
from kraftsim.lab.faults.rules_request_subjects import THROTTLE_TIME
from protocol.api_keys import ApiKey
from protocol.messages.registry import response_class, versions_of

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the seed)

T = TypeVar("T")
SHARE: Final = 0.6
"""The share of random schedules that have faults of requests."""
COUNTS: Final = ((1, 2), (2, 6), (2, 6), (6, 12), (6, 12), (12, 30))
KEPT: Final = (0.2, 0.5, 1.0)
"""The share of APIs, and of actions, that a run keeps."""
DELAYS_MS: Final = OneOf((1, 10, 50, 200, 1000, 3000))
DURATION_MS: Final = Between(200, 4000)
STANDING_MS: Final = Between(300, 3000)
"""How long a fault of any number of requests lasts."""
TIMES: Final = OneOf((1, 1, 1, 2, 5))
AFTER_BYTES: Final = OneOf((1, 7, 20, 60, 200))
LEFT_BYTES: Final = OneOf((8, 12, 20, 60, 200))
RATES: Final = OneOf((50, 500, 5000))
RARE: Final = 12
"""Of an API with at most so many requests in a run, most are sent in its beginning or after other
faults: most of its faults begin early, and wait for one.
"""
EARLY: Final = 8
"""The part of the time that is early: one eighth."""
EARLY_SHARE: Final = 0.6
ONE_HOST_SHARE: Final = 0.2
"""The share of faults about one client, and of those about one server."""


@dataclass(frozen=True, slots=True)
class RequestWay:
    """What becomes of a request: an action, and whether the node serves it before."""

    action: RequestAction
    is_done: bool = False


WAYS: Final[tuple[RequestWay, ...]] = (
    RequestWay(RequestAction.ERROR),
    RequestWay(RequestAction.ERROR, is_done=True),
    RequestWay(RequestAction.DROP),
    RequestWay(RequestAction.DROP, is_done=True),
    RequestWay(RequestAction.DELAY),
    RequestWay(RequestAction.DELAY, is_done=True),
    RequestWay(RequestAction.DUPLICATE),
    RequestWay(RequestAction.REORDER),
    RequestWay(RequestAction.REORDER, is_done=True),
    RequestWay(RequestAction.DISCONNECT),
    RequestWay(RequestAction.DISCONNECT, is_done=True),
    RequestWay(RequestAction.TRUNCATE),
    RequestWay(RequestAction.TRUNCATE, is_done=True),
    RequestWay(RequestAction.THROTTLE),
    RequestWay(RequestAction.THROTTLE, is_done=True),
    RequestWay(RequestAction.BLACKHOLE),
)
WEIGHTS: Final[Mapping[RequestWay, int]] = {
    RequestWay(RequestAction.DROP, is_done=True): 4,
    RequestWay(RequestAction.DISCONNECT, is_done=True): 3,
    RequestWay(RequestAction.DUPLICATE): 3,
}
"""How often a way is drawn in comparison with another one, where that is not 1: the ambiguous cases
are those that bugs are in. An error counts ERROR_WEIGHT times for each one that is possible.
"""
ERROR_WEIGHT: Final = 3
API_WEIGHT: Final = 6
"""An API is drawn as often as this and the number of its errors."""
COMMON: Final = frozenset(
    (api.key, api.clients, api.servers)
    for api in (
        *QUORUM_APIS,
        *BROKER_APIS,
        *WRITER_APIS,
        *TRANSACTION_APIS,
        *READER_APIS,
        *REPLICATION_APIS,
        *FORWARDED_APIS,
    )
)
"""APIs that many scenarios use: the key, and the roles of clients and servers."""
SCARCE_WEIGHT: Final = 3
"""The others are drawn so much more often where they are: the scenario is about them."""

REVEALING: Final[Mapping[ApiKey, tuple[tuple[str, Mapping[str, Value]], ...]]] = {
    ApiKey.PRODUCE: (("BatchAppended", {}), ("DuplicateAnswered", {})),
    ApiKey.INIT_PRODUCER_ID: (("TransactionStateChanged", {"state": "Empty"}),),
    ApiKey.ADD_PARTITIONS_TO_TXN: (("TransactionStateChanged", {"state": "Ongoing"}),),
    ApiKey.ADD_OFFSETS_TO_TXN: (("TransactionStateChanged", {"state": "Ongoing"}),),
    ApiKey.END_TXN: (
        ("TransactionStateChanged", {"state": "PrepareCommit"}),
        ("TransactionStateChanged", {"state": "PrepareAbort"}),
        ("TransactionStateChanged", {"state": "CompleteCommit"}),
    ),
    ApiKey.WRITE_TXN_MARKERS: (("MarkerAppended", {}),),
    ApiKey.TXN_OFFSET_COMMIT: (("PendingOffsetAdded", {}),),
    ApiKey.OFFSET_COMMIT: (("OffsetCommitted", {}),),
    ApiKey.ALLOCATE_PRODUCER_IDS: (("ProducerIdBlockAllocated", {}),),
    ApiKey.BROKER_REGISTRATION: (("BrokerRegistered", {}),),
    ApiKey.BROKER_HEARTBEAT: (("BrokerUnfenced", {}), ("BrokerFenced", {})),
    ApiKey.ALTER_PARTITION: (("PartitionChanged", {}),),
    ApiKey.VOTE: (("VoteAnswered", {"is_granted": True}),),
}
"""Events that happen while a request of the API is served, with the fields that they have then."""
REVEALING_TIMES_MAX: Final = 60
IMPLIED: Final[Mapping[tuple[ApiKey, str, str], tuple[Api, ...]]] = {
    (ApiKey.BROKER_REGISTRATION, BROKERS, CONTROLLERS): (
        Api(ApiKey.ENVELOPE, BROKERS, CONTROLLERS, 8),
        Api(ApiKey.FETCH_SNAPSHOT, BROKERS, CONTROLLERS, 4),
        Api(ApiKey.CONTROLLER_REGISTRATION, CONTROLLERS, CONTROLLERS, 4),
    ),
    (ApiKey.FETCH, CLIENTS, BROKERS): (Api(ApiKey.LIST_OFFSETS, CLIENTS, BROKERS, 8),),
    (ApiKey.JOIN_GROUP, CLIENTS, BROKERS): (Api(ApiKey.LEAVE_GROUP, CLIENTS, BROKERS, 4),),
}
"""APIs that are used together with another one. Each connection begins with ApiVersions."""


def apis_of(fault_space: FaultSpace) -> tuple[Api, ...]:
    """Return the APIs of a fault space, and those that they imply."""
    found = {(api.key, api.clients, api.servers): api for api in fault_space.apis}
    for api in fault_space.apis:
        versions = Api(ApiKey.API_VERSIONS, api.clients, api.servers, 8)
        for each in (*IMPLIED.get((ApiKey(api.key), api.clients, api.servers), ()), versions):
            found.setdefault((each.key, each.clients, each.servers), each)
    return tuple(found.values())


def draw_request_faults(random: "Random", fault_space: FaultSpace) -> tuple[Fault, ...]:
    """Draw the faults of requests of one run; none, if its fault space has no APIs."""
    if not fault_space.apis or random.random() >= SHARE:
        return ()
    draw = _Draw(random, fault_space)
    return tuple(draw.fault() for _ in range(random.randint(*random.choice(COUNTS))))


def draw_request_fault(
    random: "Random", fault_space: FaultSpace, api: Api, trigger: Trigger
) -> Fault:
    """Draw what becomes of requests of one API, from a trigger on."""
    return _Draw(random, fault_space, (api,)).fault(trigger)


def errors_at(api: Api, way: RequestWay, fault_space: FaultSpace) -> list[PossibleError]:
    """Return the errors that a server can answer to an API of a fault space, before or after it has
    served the request.
    """
    if api.key == ApiKey.FETCH and not _is_plain(fault_space):
        return []  # a broker cannot tell by its name whether it is asked as a controller
    return [
        error
        for error in possible_errors(api.key, api.clients, api.servers).errors
        if error.is_done == way.is_done
        and (not error.is_fatal or (fault_space.may_answer_fatal and api.clients == CLIENTS))
        and (not error.of_transactions or _has_transactions(fault_space))
        and _exists(error, api.key)
    ]


def ways_of(api: Api, fault_space: FaultSpace) -> list[RequestWay]:
    """Return what can become of the requests of an API."""
    return [
        way
        for way in WAYS
        if way.action is not RequestAction.ERROR or errors_at(api, way, fault_space)
    ]


def _has_transactions(fault_space: FaultSpace) -> bool:
    return any(api.key == ApiKey.END_TXN for api in fault_space.apis)


def _is_plain(fault_space: FaultSpace) -> bool:
    """Return whether each node has one role."""
    controllers = fault_space.of(CONTROLLERS)
    return not any(host in controllers for host in fault_space.of(BROKERS))


def pattern_of(role: str, hosts: Sequence[str]) -> str | None:
    """Return a pattern of the names of a role's hosts; None if there is none: a combined node has
    the name of a broker.
    """
    prefix = f"{role.removesuffix('s')}-"
    return f"{prefix}*" if all(name.startswith(prefix) for name in hosts) else None


def _exists(error: PossibleError, key: int) -> bool:
    """Return whether a version that has the error is declared."""
    first, last = versions_of(key)
    return error.version_min <= last and (error.version_max is None or error.version_max >= first)


def _is_common(api: Api) -> bool:
    return api.key == ApiKey.API_VERSIONS or (api.key, api.clients, api.servers) in COMMON


def _is_rare(api: Api) -> bool:
    return api.frames_max <= RARE


class _Draw:
    """The APIs and ways that one run keeps, and the drawing of a fault from them."""

    def __init__(
        self, random: "Random", fault_space: FaultSpace, apis: Sequence[Api] | None = None
    ) -> None:
        self._random = random
        self._fault_space = fault_space
        self._apis = self._some(list(apis_of(fault_space) if apis is None else apis))
        self._weights = [
            (API_WEIGHT + self._errors(api)) * (1 if _is_common(api) else SCARCE_WEIGHT)
            for api in self._apis
        ]
        self._ways = self._some(list(WAYS))

    def fault(self, trigger: Trigger | None = None) -> Fault:
        """Draw one fault, with its trigger unless one is given."""
        (api,) = self._random.choices(self._apis, self._weights)
        possible = ways_of(api, self._fault_space)
        ways = [way for way in self._ways if way in possible] or possible
        (way,) = self._random.choices(ways, [self._weight(api, way) for way in ways])
        trigger = self._trigger(api) if trigger is None else trigger
        is_here = isinstance(trigger, OnEvent | OnState) and self._random.random() < 0.7
        fault = self._of_api(api, way, self._node(api))
        params: dict[str, Value] = {TEXT: request_fault_text(fault)}
        if is_here:
            params[HERE] = True
        return Fault(kind=KIND, trigger=trigger, params=params)

    def _errors(self, api: Api) -> int:
        return sum(len(errors_at(api, way, self._fault_space)) for way in WAYS[:2])

    def _weight(self, api: Api, way: RequestWay) -> int:
        if way.action is RequestAction.ERROR:
            return ERROR_WEIGHT * len(errors_at(api, way, self._fault_space))
        return WEIGHTS.get(way, 1)

    def _node(self, api: Api) -> str:
        """Return the server, or all of its role: the same API may be asked of other roles, too."""
        servers = self._fault_space.of(api.servers)
        everyone = pattern_of(api.servers, servers)
        is_one = everyone is None or self._random.random() < ONE_HOST_SHARE
        return self._pick(servers) if is_one or everyone is None else everyone

    def _of_api(self, api: Api, way: RequestWay, node: str) -> RequestFault:
        fields: dict[str, object] = {}
        share = 0 if _is_rare(api) else 0.3 if way.action is RequestAction.ERROR else 0.2
        if way.action is RequestAction.BLACKHOLE or self._random.random() < share:
            fields["duration_ms"] = float(self._integer(STANDING_MS))
            if way.action is not RequestAction.BLACKHOLE:
                fields["times"] = None
                fields["share"] = self._pick((1, 1, 0.5, 0.2))
        else:
            fields["times"] = self._integer(TIMES)
            fields["nth"] = self._pick((1, 1, 1, 1, self._nth(api.frames_max)))
        fields.update(self._amounts(api, way))
        if way.action is RequestAction.ERROR:
            fields.update(self._error(api, way))
        else:
            fields.update(self._sender(api))
        return RequestFault(
            action=way.action,
            done=way.is_done and not fields.get("throttle_ms"),
            api=api.key,
            node=node,
            **fields,  # type: ignore[arg-type]  # fields of RequestFault, of their types
        )

    def _error(self, api: Api, way: RequestWay) -> dict[str, object]:
        error = self._pick(errors_at(api, way, self._fault_space))
        fields = {"error": int(error.code), **self._sender(api, is_fatal=error.is_fatal)}
        if error.version_min:
            fields["version_min"] = error.version_min
        if error.version_max is not None:
            fields["version_max"] = error.version_max
        if error.of_transactions:
            fields["transactional_id"] = "*"
        return fields

    def _amounts(self, api: Api, way: RequestWay) -> dict[str, object]:
        """Return the fields that an action needs."""
        match way.action:
            case RequestAction.DELAY:
                return {"delay_ms": float(self._integer(DELAYS_MS))}
            case RequestAction.DUPLICATE:
                delay_ms = 0 if api.key in COPIED_AT_ONCE else self._integer(DELAYS_MS)
                return {"delay_ms": float(delay_ms)}
            case RequestAction.REORDER:
                return {
                    "overtaken_by": self._pick((1, 1, 2)),
                    "wait_ms": float(self._integer(DURATION_MS)),
                }
            case RequestAction.DISCONNECT if self._random.random() < 0.6:
                return {"after_bytes": self._integer(AFTER_BYTES)}
            case RequestAction.TRUNCATE:
                return {"after_bytes": self._integer(LEFT_BYTES)}
            case RequestAction.THROTTLE:
                can_tell = way.is_done and hasattr(response_class(api.key)(), THROTTLE_TIME)
                if can_tell and self._random.random() < 0.5:
                    return {"throttle_ms": self._integer(DURATION_MS)}
                return {"bytes_per_second": self._integer(RATES)}
        return {}

    def _sender(self, api: Api, *, is_fatal: bool = False) -> dict[str, object]:
        """Return whose requests: those of a role, or of one of its hosts."""
        hosts = (
            self._fault_space.may_answer_fatal if is_fatal else self._fault_space.of(api.clients)
        )
        is_one = is_fatal or self._random.random() < ONE_HOST_SHARE
        host = self._pick(hosts) if hosts and is_one else None
        if api.clients == CLIENTS:
            client_ids: dict[str, object] = {} if host is None else {"client_id": f"{host}*"}
            return {"sender": CLIENT_SENDERS, **client_ids}
        everyone = pattern_of(api.clients, hosts)
        if host is None and everyone is not None:
            return {"sender": everyone}
        return {"sender": host or self._pick(hosts)}

    # ---- triggers

    def _trigger(self, api: Api) -> Trigger:
        if _is_rare(api) and self._random.random() < EARLY_SHARE:
            return AtTime(at_ms=self._random.randint(1, self._fault_space.fault_ms // EARLY))
        place = self._random.random()
        revealing = REVEALING.get(ApiKey(api.key), ())
        if revealing and place < 0.35:
            kind, fields = self._pick(revealing)
            nth = self._nth(min(REVEALING_TIMES_MAX, api.frames_max))
            return OnEvent(kind=kind, nth=nth, fields=dict(fields))
        fault_space, roles = self._fault_space, (api.clients, api.servers)
        moments = [each for each in fault_space.moments if each.role in roles]
        if moments and place < 0.5:
            moment: FaultMoment = self._pick(moments)
            nth = self._nth(moment.times_max)
            return OnEvent(kind=moment.kind, nth=nth, fields=dict(moment.fields))
        states = [each for each in fault_space.lasting_states if each.role in roles]
        if states and place < 0.6:
            state = self._pick(states)
            return OnState(states=state.states, nth=self._nth(state.times_max))
        files = [each for each in fault_space.files if each.role in roles]
        if files and place < 0.65:
            file = self._pick(files)
            return OnDisk(
                operation=self._pick(file.operations),
                file_class=file.file_class,
                nth=self._nth(file.times_max),
                moment=self._pick(("before", "after")),
            )
        if place < 0.7:
            other = self._pick(fault_space.apis)
            return OnFrame(
                api_key=other.key,
                is_response=self._pick((True, False)),
                nth=self._nth(other.frames_max),
            )
        return AtTime(at_ms=self._random.randint(1, fault_space.fault_ms))

    # ---- numbers

    def _nth(self, times_max: int) -> int:
        """Draw a number from 1 on by its magnitude."""
        return max(1, min(times_max, int((times_max + 1) ** self._random.random())))

    def _integer(self, draw: Between | OneOf) -> int:
        value = draw_value(self._random, draw)
        assert isinstance(value, int), "it is drawn from numbers"
        return value

    def _some(self, values: list[T]) -> list[T]:
        share = self._random.choice(KEPT)
        kept = [each for each in values if self._random.random() < share]
        return kept or [self._pick(values)]

    def _pick(self, values: Sequence[T]) -> T:
        return self._random.choice(values)

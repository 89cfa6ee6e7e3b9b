"""Adds authorizer checks to request handlers.

Only a node with an authorizer has them; the handlers themselves do not check rights.

A guard passes a request to its handler, refuses it in the form of its API, or passes on the
authorized part and adds errors for the rest to the response.
Source: kafka.server.{AuthHelper, KafkaApis, ControllerApis}.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from kraftsim.server.call import (
    Allows,
    Answer,
    Call,
    Closing,
    Deferred,
    Encoded,
    Failed,
    Handler,
    NoAnswer,
)
from kraftsim.server.rules_authorization import CLUSTER_NAME, Authorizer
from protocol.acls import AclOperation, AclResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.requests import decode_response_body
from protocol.schema import Message

if TYPE_CHECKING:
    from kraftsim.server.shell import NodeShell
from typing import Protocol

from kraftsim.groups.group_coordinator import GroupTopicsBroker
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.server.forwarding import FORWARDED
from kraftsim.server.serving_broker import ConfiguredBroker

N = TypeVar("N")
N_co = TypeVar("N_co", covariant=True)
N_contra = TypeVar("N_contra", contravariant=True)
T = TypeVar("T")
CORRELATION_ID_BYTES: Final = 4
UNANSWERED: Final = "the client is not authorized for a request without a response"


class AskedRights(Generic[N_co]):
    """A request on its way to its handler, and the rights of its principal."""

    __slots__ = ("_authorizer", "_handler", "call", "node")

    def __init__(
        self, node: N_co, call: Call, handler: Handler[N_co], authorizer: Authorizer
    ) -> None:
        self.node = node
        self.call = call
        self._handler = handler
        self._authorizer = authorizer

    def may(self, operation: AclOperation, resource: AclResourceType, name: str) -> bool:
        """Return whether the client is authorized for an operation on a resource."""
        return self._authorizer.allows(
            self.call.principal, self.call.host, operation, resource, name
        )

    def may_on_cluster(self, operation: AclOperation) -> bool:
        """Return whether the client is authorized for an operation on the cluster."""
        return self.may(operation, AclResourceType.CLUSTER, CLUSTER_NAME)

    def verdicts(
        self, operation: AclOperation, resource: AclResourceType
    ) -> Mapping[str, bool] | None:
        """Return name -> whether the client is authorized for it, cached until ACLs change; None
        for a super user.
        """
        if self._authorizer.is_super_user(self.call.principal):
            return None
        return self._authorizer.verdicts(self.call.principal, self.call.host, operation, resource)

    def may_on_any(self, operation: AclOperation, resource: AclResourceType) -> bool:
        """Return whether the client is authorized for an operation on any resource of a type."""
        return self._authorizer.allows_any(self.call.principal, self.call.host, operation, resource)

    def pass_on(self) -> Answer | Deferred:
        """Let the handler serve the request unchanged."""
        return self._handler.handle(self.node, self.call)

    def pass_on_allowed(self, allows: Allows) -> Answer | Deferred:
        """Let the handler serve what the client is authorized for, including resources that the
        request does not name itself.
        """
        assert self._handler.handle_allowed is not None, (
            "only a handler that applies rights itself is guarded this way"
        )
        return self._handler.handle_allowed(self.node, self.call, allows)

    def refuse(self, error: ErrorCode) -> Answer:
        """Refuse the whole request."""
        if self._handler.refuse is None:
            return Closing(f"the client may not ask this: {error.name}")
        return self._handler.refuse(self.call, error)

    def pass_on_rest(self, rest: Message, add: Callable[[Message], None]) -> Answer | Deferred:
        """Let the handler serve the rest of the request; `add` completes its response.

        The handler gets a request of its own: whatever it reads in later event-loop turns, or
        decides a second time, never contains more than `rest`.
        """
        left = copy.copy(self.call)
        left.body = rest
        return completed(self.call, self._handler.handle(self.node, left), add)


Guard = Callable[[AskedRights[N]], Answer | Deferred]


def split(entries: Iterable[T], may: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    """Return the entries of a request that its client is authorized for, and the others, both in
    request order.

    Every guard splits its request here. Each entry is checked once and never looked up in a list,
    so that the cost of a guard is linear in the size of the request.
    """
    allowed: list[T] = []
    refused: list[T] = []
    for entry in entries:
        (allowed if may(entry) else refused).append(entry)
    return allowed, refused


@dataclass(frozen=True, slots=True)
class GuardTable(Generic[N_contra]):
    """The guard of each API of one kind of node, and the reasons for APIs without one: an API in
    neither is not served.
    """

    guards: Mapping[ApiKey, Guard[N_contra]]
    exempt: Mapping[ApiKey, str]


def guarded(
    shell: "NodeShell", table: GuardTable[N], handlers: Iterable[Handler[N]]
) -> tuple[Handler[N], ...]:
    """Return handlers with their guards, if the node has an authorizer."""
    authorizer = shell.security.authorizer
    if authorizer is None:
        return tuple(handlers)
    return tuple(_with_guard(handler, table, authorizer) for handler in handlers)


def _with_guard(handler: Handler[N], table: GuardTable[N], authorizer: Authorizer) -> Handler[N]:
    guard = table.guards.get(handler.key)
    if guard is not None:
        return _guarded(handler, guard, authorizer)
    assert handler.key in table.exempt, (
        f"{handler.key.name} has neither a guard nor a reason to have none"
    )
    return handler


def cluster_guard(operation: AclOperation) -> Guard[N]:
    """Return a guard that requires an operation on the cluster."""

    def look(asked: AskedRights[N]) -> Answer | Deferred:
        return (
            asked.pass_on()
            if asked.may_on_cluster(operation)
            else asked.refuse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        )

    return look


def completed(
    call: Call, answer: Answer | Deferred, add: Callable[[Message], None]
) -> Answer | Deferred:
    """Return an answer completed by `add`, once it is available."""
    if not isinstance(answer, Deferred):
        return _with(call, answer, add)
    if answer.answer is not None:
        return _with(call, answer.answer, add)
    later, inner = Deferred(), answer

    def pass_on() -> None:
        assert inner.answer is not None, "called once the answer is complete"
        later.complete_with(lambda: _with(call, cast(Answer, inner.answer), add))

    inner.attach(pass_on)
    later.when_abandoned(inner.abandon)
    return later


def _with(call: Call, answer: Answer, add: Callable[[Message], None]) -> Answer:
    if isinstance(answer, NoAnswer):
        return Closing(UNANSWERED)
    if isinstance(answer, Closing | Failed):
        return answer
    if isinstance(answer, Encoded):
        answer = decode_response_body(
            call.api_key, call.api_version, bytes(CORRELATION_ID_BYTES) + answer.rest
        )
    add(answer)
    return answer


def _guarded(handler: Handler[N], guard: Guard[N], authorizer: Authorizer) -> Handler[N]:
    def handle(node: N, call: Call) -> Answer | Deferred:
        return guard(AskedRights(node, call, handler, authorizer))

    return Handler(key=handler.key, handle=handle, refuse=handler.refuse, slices=handler.slices)


# --------------------------------------------------------------------------------------------------
# What authorizer checks read of the node whose requests they check


class GuardedBroker(GroupTopicsBroker, ConfiguredBroker, Protocol):
    """A broker with an authorizer: the names of topic ids, whether consumer groups and share groups
    are enabled, and whether Metadata creates topics.
    """

    @property
    def serves_share_groups(self) -> bool:
        """Whether share.version is enabled."""
        ...


class StateWriter(Protocol):
    """A metadata writer, of which checks read the state only."""

    @property
    def state(self) -> ControllerState:
        """The state of the controller."""
        ...


class GuardedController(Protocol):
    """A controller with an authorizer."""

    @property
    def metadata_writer(self) -> StateWriter:
        """The names of topic ids."""
        ...


# --------------------------------------------------------------------------------------------------
# APIs without an authorizer check, with the reason: a node with an authorizer refuses to start if
# a served API is neither here nor in a table of checks
#
# Source: kafka.server.{KafkaApis, ControllerApis}.

BEFORE_AUTHENTICATION: Final = (
    "negotiates versions or authenticates the client, before it has any right"
)
NO_TOKENS: Final = "delegation tokens are refused to every client"
IN_ENVELOPE: Final = "the broker forwards it; the controller checks the client inside the Envelope"

ANY_NODE: Final[Mapping[ApiKey, str]] = {
    **dict.fromkeys(
        (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE),
        BEFORE_AUTHENTICATION,
    ),
    **dict.fromkeys(
        (
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
        ),
        NO_TOKENS,
    ),
}
OWN_METRICS: Final = "a client asks for its own subscription, and pushes its own metrics"
ANY_BROKER: Final[Mapping[ApiKey, str]] = {
    **ANY_NODE,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: NO_TOKENS,
    **dict.fromkeys((ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY), OWN_METRICS),
}
HANDED_ON: Final[Mapping[ApiKey, str]] = {
    key: IN_ENVELOPE
    for key in sorted(FORWARDED - set(ANY_NODE))
    if key not in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS)
}
"""APIs that a KRaft broker does not authorize itself."""

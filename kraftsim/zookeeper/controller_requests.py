"""Request routing in ZooKeeper mode: most requests are served by the controller, and some change
znodes that every broker may write.

Where the rules equal those of KRaft, the KRaft handlers are used. A request whose write ZooKeeper
has not acknowledged is answered once it has; after a resignation it is answered with
NOT_CONTROLLER, in the form of each API.
Source: kafka.server.{KafkaApis, ZkAdminManager, ConfigAdminManager},
kafka.controller.KafkaController.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, cast

from kraftsim.metadata.topic_creation import TopicCreation
from kraftsim.server.call import Answer, Call, Deferred, Handler, controller_handlers
from kraftsim.server.config import NodeConfig
from kraftsim.server.controller_channel import ControllerChannel
from kraftsim.server.forwarding import Forwarding, Refuse
from kraftsim.server.outbound import OnAnswer
from kraftsim.zookeeper.cluster_requests import (
    allocate_producer_ids,
    alter_partition,
    controlled_shutdown,
)
from kraftsim.zookeeper.controller_context import ControllerContext
from kraftsim.zookeeper.entity_requests import (
    EntityController,
    alter_client_quotas,
    alter_configs,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    incremental_alter_configs,
)
from kraftsim.zookeeper.topic_requests import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k07_controlled_shutdown import ControlledShutdownResponse
from protocol.messages.k19_create_topics import CreateTopicsRequest

Serve: TypeAlias = Callable[[ControllerContext, Call], Answer | Deferred]
ServeAnywhere: TypeAlias = Callable[[EntityController, Call], Answer | Deferred]
BY_CONTROLLER: Final[dict[int, Serve]] = {
    ApiKey.CONTROLLED_SHUTDOWN: controlled_shutdown,
    ApiKey.ALTER_PARTITION: alter_partition,
    ApiKey.ALLOCATE_PRODUCER_IDS: allocate_producer_ids,
    ApiKey.CREATE_TOPICS: create_topics,
    ApiKey.CREATE_PARTITIONS: create_partitions,
    ApiKey.DELETE_TOPICS: delete_topics,
    ApiKey.ELECT_LEADERS: elect_leaders,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
}
ANYWHERE: Final[dict[int, ServeAnywhere]] = {
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas,
    ApiKey.CREATE_ACLS: create_acls,
    ApiKey.DELETE_ACLS: delete_acls,
}
"""APIs that every broker serves by writing to ZooKeeper itself."""


class RequestedController(EntityController, Protocol):
    """The controller component of a broker."""

    @property
    def context(self) -> ControllerContext | None:
        """Not None while this broker is the active controller."""
        ...


def answer_to(controller: RequestedController, key: int, call: Call) -> Answer | Deferred:
    """Handle a request, or refuse it because this broker is not the controller."""
    anywhere = ANYWHERE.get(key)
    if anywhere is not None:
        return anywhere(controller, call)
    context = controller.context
    if context is None or not context.is_active:
        return refusal(call, ErrorCode.NOT_CONTROLLER)
    if key == ApiKey.ALTER_USER_SCRAM_CREDENTIALS:
        return alter_user_scram_credentials(controller, call)
    serve = BY_CONTROLLER.get(key)
    return _gated(context, call, serve if serve is not None else _as_kraft(key))


def refusal(call: Call, error: ErrorCode) -> Answer:
    """Return the response to a request that is refused as a whole."""
    if call.api_key == ApiKey.CONTROLLED_SHUTDOWN:
        moved = error == ErrorCode.NOT_CONTROLLER
        return ControlledShutdownResponse(
            error_code=ErrorCode.STALE_CONTROLLER_EPOCH if moved else error
        )
    refuse = _kraft_handlers()[call.api_key].refuse
    assert refuse is not None, "what a controller decides can be refused"
    return refuse(call, error)


def _gated(context: ControllerContext, call: Call, serve: Serve) -> Answer | Deferred:
    writer = context.metadata_writer

    def handle() -> Answer | Deferred:
        if not context.is_active:
            return refusal(call, ErrorCode.NOT_CONTROLLER)
        writer.refuse, writer.again = (lambda error: refusal(call, error)), handle
        try:
            return serve(context, call)
        finally:
            writer.refuse, writer.again = None, None

    return handle()


def _as_kraft(key: int) -> Serve:
    """Return the KRaft controller's handler of an API: it needs no more of its node than the
    ZooKeeper controller offers.
    """
    handler = _kraft_handlers()[key]
    return lambda context, call: handler.handle(context, call)


def _kraft_handlers() -> dict[int, Handler[ControllerContext]]:
    if not _HANDLERS:
        for handler in cast(tuple[Handler[ControllerContext], ...], controller_handlers()):
            _HANDLERS[handler.key] = handler
    return _HANDLERS


_HANDLERS: dict[int, Handler[ControllerContext]] = {}


# --------------------------------------------------------------------------------------------------
# Routing of controller requests in ZooKeeper mode: the broker that is the controller decides them,
# other brokers answer NOT_CONTROLLER
#
# A migrating broker forwards them in envelopes once the controller is a KRaft controller (since
# 3.4).
# Source: kafka.server.{KafkaApis, ZkSupport.maybeForward, DefaultAutoTopicCreationManager}.


class DecidesHere(Protocol):
    """A controller that is a component of this broker."""

    @property
    def is_active(self) -> bool:
        """Whether it is the active controller of the cluster."""
        ...

    def handle(self, key: int, call: Call) -> Answer | Deferred:
        """Handle a request."""
        ...


ANY_BROKER: Final = frozenset(
    {
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
    }
)
"""Every broker writes these znodes itself."""


class ZookeeperDecisions:
    """`controller()` is this broker's controller component; `forwarding` forwards to a remote
    controller, `forwards()` tells whether to use it.
    """

    def __init__(
        self,
        controller: Callable[[], DecidesHere | None],
        forwarding: Forwarding,
        forwards: Callable[[], bool],
    ) -> None:
        self._controller = controller
        self._forwarding = forwarding
        self._forwards = forwards

    def forward(self, call: Call, later: Deferred, refuse: Refuse) -> None:
        """Complete `later` with the local or forwarded answer, or with `refuse(call,
        NOT_CONTROLLER)` if neither is possible.
        """
        controller = self._controller()
        if controller is not None and (
            controller.is_active or (call.api_key in ANY_BROKER and not self._forwards())
        ):
            _pass_on(controller.handle(call.api_key, call), later)
        elif self._forwards():
            self._forwarding.forward(call, later, refuse)
        else:
            later.complete(refuse(call, ErrorCode.NOT_CONTROLLER))


class ZookeeperTopicCreation(TopicCreation):
    """Sends CreateTopics to the controller as a client would; to a KRaft controller in an envelope,
    as KRaft brokers do.
    """

    def __init__(
        self,
        config: NodeConfig,
        channel: ControllerChannel,
        api_version: int,
        is_kraft: Callable[[], bool],
    ) -> None:
        super().__init__(config, channel, api_version)
        self._is_kraft = is_kraft

    def _ask(self, request: CreateTopicsRequest, on_answer: OnAnswer) -> None:
        if self._is_kraft():
            super()._ask(request, on_answer)
        else:
            self._channel.send(request, on_answer)


def _pass_on(answer: Answer | Deferred, later: Deferred) -> None:
    if not isinstance(answer, Deferred):
        later.complete(answer)
        return
    inner = answer
    if inner.answer is not None:
        later.complete(inner.answer)
        return

    def complete() -> None:
        assert inner.answer is not None, "called once the answer is complete"
        later.complete(inner.answer)

    inner.attach(complete)
    later.when_abandoned(inner.abandon)

"""Request routing in ZooKeeper mode: most requests are served by the controller, and some change
znodes that every broker may write.

Where the rules equal those of KRaft, the KRaft handlers are used. A request whose write ZooKeeper
has not acknowledged is answered once it has; after a resignation it is answered with
NOT_CONTROLLER, in the form of each API.
Source: kafka.server.{KafkaApis, ZkAdminManager, ConfigAdminManager},
kafka.controller.KafkaController.
"""

from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from kraftsim.catalogue import Catalogue
from kraftsim.server.call import Answer, Call, Deferred, Handler
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
        for handler in Catalogue("kraftsim.*.controller_handlers", "HANDLER", Handler).all():
            _HANDLERS[handler.key] = handler
    return _HANDLERS


_HANDLERS: dict[int, Handler[ControllerContext]] = {}

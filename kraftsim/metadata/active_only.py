"""Gate for controller requests: most are served by the active controller only, any other controller
answers NOT_CONTROLLER in the form of each API.

Source: org.apache.kafka.controller.QuorumController (ControllerWriteEvent, ControllerReadEvent),
kafka.server.ControllerApis.
"""

from collections.abc import Callable
from typing import TypeVar

from kraftsim.metadata.deciding_controller import DecidingController
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

N = TypeVar("N", bound=DecidingController)
Handle = Callable[[N, Call], Answer | Deferred]

SERVED_BY_ANY = (
    ApiKey.FETCH,
    ApiKey.API_VERSIONS,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
)
"""APIs that every controller serves; the quorum APIs return the current leader themselves, and need
no gate.
"""


RUNS_BEFORE_MIGRATION = (
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.CONTROLLER_REGISTRATION,
)
"""APIs that are served before the migration from ZooKeeper has copied the metadata."""
READS = (ApiKey.LIST_PARTITION_REASSIGNMENTS, ApiKey.ENVELOPE)
"""APIs that do not change state themselves."""


def for_active_controller(handler: Handler[N]) -> Handler[N]:
    """Return a handler that only the active controller executes, unless every controller may."""
    refuse = handler.refuse
    if handler.key in SERVED_BY_ANY or refuse is None:
        return handler
    waits = handler.key not in (*RUNS_BEFORE_MIGRATION, *READS)
    return Handler(
        key=handler.key,
        handle=behind_gate(handler.handle, refuse, waits=waits),
        refuse=refuse,
        slices=handler.slices,
    )


def behind_gate(
    serve: Handle[N], refuse: Callable[[Call, ErrorCode], Answer], *, waits: bool = True
) -> Handle[N]:
    """Return `serve` restricted to the active controller; if it `waits`, requests are refused until
    ZooKeeper metadata is migrated (KAFKA-14805).
    """

    def handle(controller: N, call: Call) -> Answer | Deferred:
        if not controller.is_active:
            return refuse(call, ErrorCode.NOT_CONTROLLER)
        writer = controller.metadata_writer
        if waits and writer.state.is_before_migration:
            return (
                refuse(call, ErrorCode.NOT_CONTROLLER)
                if writer.refuse is None
                else writer.refuse(ErrorCode.NOT_CONTROLLER)
            )
        if writer.refuse is not None:
            return serve(controller, call)  # inside an Envelope, which is refused as a whole
        writer.refuse = lambda error: refuse(call, error)
        try:
            return serve(controller, call)
        finally:
            writer.refuse = None

    return handle

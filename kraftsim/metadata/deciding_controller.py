"""What request handlers and periodic tasks use of a controller: its interface, the gate that only
the active controller passes, and large requests that are decided in several turns.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from kraftsim.core.decision import Decision, Steps, ends_step, whole
from kraftsim.metadata.metadata_writer import AppendedOffsets, MetadataWriter
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.server.call import Answer, Call, Deferred, Failed, Handler, completed_by, reason_of
from kraftsim.server.client_quotas import MutationQuotas
from kraftsim.server.config import NodeConfig
from kraftsim.server.shell import NodeShell
from kraftsim.server.slices import Turns
from kraftsim.world.interface import World
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.schema import Message

# --------------------------------------------------------------------------------------------------
# What request handlers and periodic tasks use of a controller
#
# KRaft's controller has all of it; the controller of a broker in ZooKeeper mode has what the
# handlers need that both share.

T = TypeVar("T")


class DecisionWriter(Protocol):
    """Writes decisions: to the metadata log, or to ZooKeeper."""

    refuse: Callable[[ErrorCode], Answer] | None
    """Builds the refusal of the request being handled."""

    @property
    def state(self) -> ControllerState:
        """The state of the cluster, with all decisions that are written."""
        ...

    @property
    def next_offset(self) -> int:
        """The offset of the next record."""
        ...

    def commit(
        self,
        decision: Decision[T],
        build_answer: Callable[[AppendedOffsets | None], Answer],
        *,
        is_atomic: bool = True,
    ) -> Answer | Deferred:
        """Write a decision and answer once it is committed."""
        ...


class DecidingController(Protocol):
    """A controller that decides requests."""

    @property
    def world(self) -> World:
        """Clock, random numbers and event log."""
        ...

    @property
    def config(self) -> NodeConfig:
        """The properties of the node."""
        ...

    @property
    def shell(self) -> NodeShell:
        """Tasks, turns and security of the node."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether this is the active controller, to its own knowledge."""
        ...

    @property
    def metadata_writer(self) -> DecisionWriter:
        """The state of the cluster, and the only way to change it."""
        ...


class MutationController(DecidingController, Protocol):
    """A controller that limits how fast clients create and delete partitions (KIP-599)."""

    @property
    def mutations(self) -> MutationQuotas:
        """The quotas of controller mutations."""
        ...


class SessionController(DecidingController, Protocol):
    """A controller that measures the sessions of brokers."""

    def now_ms(self) -> int:
        """Return the monotonic clock, by which broker sessions are measured."""
        ...


class LogController(SessionController, Protocol):
    """A controller that writes to the metadata log."""

    @property
    def metadata_writer(self) -> MetadataWriter:
        """The state of the cluster, and the only way to change it."""
        ...


# --------------------------------------------------------------------------------------------------
# Gate for controller requests: most are served by the active controller only, any other controller
# answers NOT_CONTROLLER in the form of each API
#
# Source: org.apache.kafka.controller.QuorumController (ControllerWriteEvent, ControllerReadEvent),
# kafka.server.ControllerApis.

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


# --------------------------------------------------------------------------------------------------
# Decides large requests of the active controller in several event-loop turns, with the result of a
# single atomic decision
#
# Computing a decision does not change state, so it may yield between steps; if the state changes
# meanwhile, the result is discarded and computed again in one turn. Large requests are decided one
# at a time, so that none changes the state under another. Writing takes one turn: Kafka's
# controller handles one event at a time, and so does this one.
# Source: org.apache.kafka.controller.QuorumController (ControllerWriteEvent).

Decided = TypeVar("Decided")


def decide(
    controller: DecidingController,
    call: Call,
    look: Callable[[], Steps[Decided]],
    carry_out: Callable[[Decided], Answer | Deferred],
) -> Answer | Deferred:
    """Return the result of `carry_out` for the decision computed by `look`; in several turns for a
    large call.

    Only the metadata writer of a KRaft controller can detect changes between two steps: in
    ZooKeeper mode requests are decided in one turn.
    """
    writer, later, refuse = (
        controller.metadata_writer,
        Deferred(),
        controller.metadata_writer.refuse,
    )
    if not call.is_large or refuse is None or not isinstance(writer, MetadataWriter):
        return carry_out(whole(look()))

    async def decide_in_steps() -> None:
        async with writer.deciding:
            try:
                decided = await _looked(writer, controller.shell.turns, look)
                if controller.is_active:
                    writer.refuse = refuse
                    answer = carry_out(decided)
                else:
                    answer = refuse(ErrorCode.NOT_CONTROLLER)
            except AssertionError:
                raise
            except Exception as unforeseen:
                answer = Failed(f"the handler failed: {reason_of(unforeseen)}")
            finally:
                writer.refuse = None
                writer.encoded.clear()
        completed_by(answer, later)

    controller.shell.tasks.spawn(decide_in_steps(), "decide-in-steps")
    return later


async def _looked(
    writer: MetadataWriter, turns: Turns, look: Callable[[], Steps[Decided]]
) -> Decided:
    """Run the steps while the state is unchanged; if it changes, compute the decision in one
    turn.
    """
    steps = look()
    before = writer.change_count
    while writer.change_count == before:
        try:
            next(steps)
        except StopIteration as end:
            decided: Decided = end.value
            if isinstance(decided, Decision):
                await _encode_ahead(writer, turns, decided.records)
            if writer.change_count == before:
                return decided
            break
        await turns.next()
    writer.encoded.clear()
    return whole(look())


async def _encode_ahead(writer: MetadataWriter, turns: Turns, records: Sequence[Message]) -> None:
    """Encode records in advance, so that writing them takes one short turn."""
    for index, record in enumerate(records):
        writer.encode_ahead(record)
        if ends_step(index):
            await turns.next()

"""The states, requests, inputs and effects of a transactional producer, besides those of every
producer, and its handling of errors.

Source: KIP-98, KIP-360, KIP-447, KIP-588, KIP-890,
org.apache.kafka.clients.producer.internals.TransactionManager.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple

import msgspec

from kraftsim.clients.rules_producer_steps import (
    FlushAsked,
    IdentityTaken,
    MetadataArrived,
    MetadataLost,
    ProduceAnswered,
    ProduceLost,
    ProducerIdentity,
    ProducerSettings,
    RecordDelivered,
    RecordGiven,
    RecordGivenUp,
    SendMetadataRequest,
    SendProduce,
    TimePassed,
    TopicPartition,
)
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

NO_GENERATION_ID = -1


class ProducerState(Enum):
    """The state of a transactional producer."""

    UNINITIALISED = auto()
    INITIALISING = auto()
    """InitProducerId is in flight: the first one, or one that bumps the epoch after a lost sequence
    (KIP-360).
    """
    READY = auto()
    IN_TRANSACTION = auto()
    PREPARED = auto()
    """Of a participant of a two-phase commit: the transaction can only be ended."""
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    """Only an abort is possible."""
    FATAL_ERROR = auto()
    """The producer cannot be used any more."""


class CoordinatorKind(Enum):
    """The coordinator type; the value is FindCoordinator's key_type."""

    GROUP = 0
    TRANSACTION = 1


class TransactionOutcome(Enum):
    """The result of a transaction, as known to its producer."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class GroupIdentity(NamedTuple):
    """The group of an offset commit.

    Without a member (generation -1) the coordinator checks the producer only (KIP-447).
    """

    group_id: str
    generation_id: int = NO_GENERATION_ID
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalSettings:
    """Kafka's settings, by their names."""

    transactional_id: str
    transaction_timeout_ms: int = 60_000
    producer: ProducerSettings = field(default_factory=ProducerSettings)
    busy_backoff_ms: int = 20
    """The backoff of AddPartitionsToTxn while the coordinator completes the previous
    transaction.
    """
    downgrades_commits: bool = True
    """kraftsim only: whether offsets are committed without member data if a pre-2.5 broker does not
    support it; False: the error is fatal.

    Kafka's producers have both; that of Kafka Streams uses the first
    (internal.auto.downgrade.txn.commit).
    """
    uses_implicit_adding: bool = True
    """kraftsim only: whether transaction.version 2 is used if the cluster has it; False: an older
    client.
    """
    participates: bool = False
    """transaction.two.phase.commit.enable (KIP-939)."""
    keeps: bool = False
    """The argument of initTransactions: an open transaction of the producer before is kept."""


# Requests
# --------------------------------------------------------------------------------------------------


class InitProducerId(msgspec.Struct, frozen=True, kw_only=True):
    """Initialize the transactional id; with an identity: bump its epoch (KIP-360).

    `participates`: in a two-phase commit; `keeps`: the open transaction (KIP-939).
    """

    transactional_id: str
    transaction_timeout_ms: int
    identity: ProducerIdentity | None
    participates: bool = False
    keeps: bool = False


class AddPartitions(msgspec.Struct, frozen=True, kw_only=True):
    """Add partitions to the transaction before they are written to."""

    transactional_id: str
    identity: ProducerIdentity
    partitions: tuple[TopicPartition, ...]


class AddOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Add the offsets of a group to the transaction."""

    transactional_id: str
    identity: ProducerIdentity
    group_id: str


class CommitOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Commit offsets in the transaction, at the group coordinator."""

    transactional_id: str
    identity: ProducerIdentity
    group: GroupIdentity
    offsets: tuple[tuple[TopicPartition, int], ...]


class EndTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """Commit or abort."""

    transactional_id: str
    identity: ProducerIdentity
    is_commit: bool


Question = InitProducerId | AddPartitions | AddOffsets | CommitOffsets | EndTransaction
API_OF: Final[Mapping[type, ApiKey]] = {
    InitProducerId: ApiKey.INIT_PRODUCER_ID,
    AddPartitions: ApiKey.ADD_PARTITIONS_TO_TXN,
    AddOffsets: ApiKey.ADD_OFFSETS_TO_TXN,
    CommitOffsets: ApiKey.TXN_OFFSET_COMMIT,
    EndTransaction: ApiKey.END_TXN,
}
"""The API of each request."""


# Inputs
# --------------------------------------------------------------------------------------------------


class InitAsked(msgspec.Struct, frozen=True):
    """initTransactions()."""


class BeginAsked(msgspec.Struct, frozen=True):
    """beginTransaction()."""


class OffsetsGiven(msgspec.Struct, frozen=True, kw_only=True):
    """sendOffsetsToTransaction()."""

    group: GroupIdentity
    offsets: Mapping[TopicPartition, int]


class PrepareAsked(msgspec.Struct, frozen=True):
    """prepareTransaction(), once every record is acknowledged and every offset stored."""


class CommitAsked(msgspec.Struct, frozen=True):
    """commitTransaction()."""


class AbortAsked(msgspec.Struct, frozen=True):
    """abortTransaction()."""


class CoordinatorFound(msgspec.Struct, frozen=True, kw_only=True):
    """The address of a coordinator, and the finalized transaction.version of the cluster."""

    kind: CoordinatorKind
    broker_id: int
    transaction_version: int = 0


class CoordinatorLost(msgspec.Struct, frozen=True, kw_only=True):
    """FindCoordinator failed with an error; `None`: no response."""

    kind: CoordinatorKind
    error_code: ErrorCode | None


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The response to the request in flight.

    `errors` if there is one per partition; `identity` if the response has one; `kept` is that of
    the open transaction (KIP-939).
    """

    error_code: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode] = {}
    identity: ProducerIdentity | None = None
    kept: ProducerIdentity | None = None


class QuestionLost(msgspec.Struct, frozen=True):
    """No response to the request in flight: whether it was executed is unknown."""


TransactionalInput = (
    InitAsked
    | BeginAsked
    | OffsetsGiven
    | PrepareAsked
    | CommitAsked
    | AbortAsked
    | CoordinatorFound
    | CoordinatorLost
    | Answered
    | QuestionLost
    | RecordGiven
    | FlushAsked
    | TimePassed
    | MetadataArrived
    | MetadataLost
    | ProduceAnswered
    | ProduceLost
)


# Effects
# --------------------------------------------------------------------------------------------------


class FindCoordinator(msgspec.Struct, frozen=True, kw_only=True):
    """Send FindCoordinator to any broker; the response is CoordinatorFound or CoordinatorLost."""

    kind: CoordinatorKind
    key: str


class SendQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Send a request to a coordinator; the response is Answered or QuestionLost.

    One is in flight at a time.
    """

    broker_id: int
    question: Question
    is_implicit: bool
    """Whether this is a transaction of transaction.version 2, with the latest request versions;
    else the earlier ones are used.
    """


class TransactionSettled(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction is completed for the application."""

    outcome: TransactionOutcome
    identity: ProducerIdentity
    error_code: ErrorCode


class OffsetsAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets are pending at the group coordinator."""

    identity: ProducerIdentity
    group: GroupIdentity
    offsets: tuple[tuple[TopicPartition, int], ...]


class ProducerErred(msgspec.Struct, frozen=True, kw_only=True):
    """The state is ABORTABLE_ERROR or FATAL_ERROR from now on, because of a request of an API."""

    api: ApiKey
    error_code: ErrorCode
    reason: str
    is_fatal: bool


class IdTaken(msgspec.Struct, frozen=True):
    """initTransactions() has succeeded."""

    identity: ProducerIdentity


TransactionalEffect = (
    FindCoordinator
    | SendQuestion
    | TransactionSettled
    | OffsetsAccepted
    | ProducerErred
    | IdTaken
    | IdentityTaken
    | SendMetadataRequest
    | SendProduce
    | RecordDelivered
    | RecordGivenUp
)


# --------------------------------------------------------------------------------------------------
# Errors, by request: a table
#
# Source: the handlers in TransactionManager.


class Meaning(Enum):
    """The handling of an error."""

    DONE = auto()
    RETRY = auto()
    FIND_COORDINATOR = auto()
    """Look up the coordinator, then retry."""
    ABORT = auto()
    ABORT_AND_BUMP = auto()
    """Abort, and bump the epoch before the next transaction."""
    FATAL = auto()


OF_ALL: Mapping[ErrorCode, Meaning] = {
    ErrorCode.NONE: Meaning.DONE,
    ErrorCode.NOT_COORDINATOR: Meaning.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Meaning.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Meaning.RETRY,
    ErrorCode.CONCURRENT_TRANSACTIONS: Meaning.RETRY,
    ErrorCode.INVALID_PRODUCER_EPOCH: Meaning.FATAL,
    ErrorCode.PRODUCER_FENCED: Meaning.FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Meaning.FATAL,
    ErrorCode.TRANSACTION_ABORTABLE: Meaning.ABORT,
}
LOST_ID = {
    ErrorCode.UNKNOWN_PRODUCER_ID: Meaning.ABORT_AND_BUMP,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Meaning.ABORT_AND_BUMP,
}
OWN: Mapping[type, Mapping[ErrorCode, Meaning]] = {
    InitProducerId: {},
    AddPartitions: {**LOST_ID, ErrorCode.INVALID_TXN_STATE: Meaning.FATAL},
    AddOffsets: {
        **LOST_ID,
        ErrorCode.INVALID_TXN_STATE: Meaning.FATAL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Meaning.ABORT,
    },
    CommitOffsets: {
        ErrorCode.REQUEST_TIMED_OUT: Meaning.FIND_COORDINATOR,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Meaning.ABORT,
        ErrorCode.FENCED_INSTANCE_ID: Meaning.ABORT,
        ErrorCode.UNKNOWN_MEMBER_ID: Meaning.ABORT,
        ErrorCode.ILLEGAL_GENERATION: Meaning.ABORT,
    },
    EndTransaction: {**LOST_ID, ErrorCode.INVALID_TXN_STATE: Meaning.FATAL},
}
ELSE: Mapping[type, Meaning] = {AddPartitions: Meaning.ABORT}
"""All other errors: for example, topics without write access fail this transaction only."""
FATAL_FOR_BATCHES = (
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
"""Produce errors that are fatal; any other non-retriable error is abortable."""


def meaning_of(question: Question, error: ErrorCode) -> Meaning:
    """Return how an error of a request is handled."""
    kind: type = type(question)
    own = OWN[kind].get(error)
    if own is not None:
        return own
    shared = OF_ALL.get(error)
    if shared is not None:
        return shared
    return Meaning.RETRY if error.retriable else ELSE.get(kind, Meaning.FATAL)

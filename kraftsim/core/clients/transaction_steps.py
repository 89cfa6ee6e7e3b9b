"""What goes into the rules of a transactional producer and what comes out, beside what every producer has: states, questions, inputs, effects.

Source: KIP-98, KIP-360, KIP-447, KIP-890, org.apache.kafka.clients.producer.internals.TransactionManager.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

import msgspec

from kraftsim.core.clients.producer_steps import (
    AskMetadata,
    FlushAsked,
    Identity,
    IdentityTaken,
    MetadataArrived,
    MetadataLost,
    ProduceAnswered,
    ProduceLost,
    ProducerSettings,
    RecordDelivered,
    RecordGiven,
    RecordGivenUp,
    SendProduce,
    TimePassed,
    TopicPartition,
)
from protocol.errors import ErrorCode

NO_GENERATION_ID = -1


class ProducerState(Enum):
    """Where a transactional producer is."""

    UNINITIALISED = auto()
    INITIALISING = auto()
    """InitProducerId is under way: the first, or one for a new epoch after a sequence was lost (KIP-360)."""
    READY = auto()
    IN_TRANSACTION = auto()
    COMMITTING = auto()
    ABORTING = auto()
    ABORTABLE_ERROR = auto()
    """Only an abort leads out of here."""
    FATAL_ERROR = auto()
    """Nothing leads out of here."""


class CoordinatorKind(Enum):
    """Which coordinator; the value is FindCoordinator's key_type."""

    GROUP = 0
    TRANSACTION = 1


class Outcome(Enum):
    """How a transaction ended, as far as its producer knows."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class GroupIdentity(NamedTuple):
    """On whose behalf offsets are committed. Without a member (generation -1) the coordinator checks the producer only (KIP-447)."""

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
    """Before AddPartitionsToTxn is sent again while the coordinator still ends the transaction before."""
    downgrades_commits: bool = True
    """Ours: whether offsets are committed for nobody in particular where a broker of before 2.5 knows no members; False: the producer is at its end.

    Kafka's producers have both; that of Kafka Streams asks for the first (internal.auto.downgrade.txn.commit).
    """
    uses_implicit_adding: bool = True
    """Ours: whether transaction.version 2 is used where the cluster has it; False: an older client."""


# Questions --------------------------------------------------------------------------------------------------------------------------------------


class InitProducerId(msgspec.Struct, frozen=True, kw_only=True):
    """Take over the transactional id; with an identity: go on under its next epoch (KIP-360)."""

    transactional_id: str
    transaction_timeout_ms: int
    identity: Identity | None


class AddPartitions(msgspec.Struct, frozen=True, kw_only=True):
    """Make partitions part of the transaction before anything is written to them."""

    transactional_id: str
    identity: Identity
    partitions: tuple[TopicPartition, ...]


class AddOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Make the offsets of a group part of the transaction."""

    transactional_id: str
    identity: Identity
    group_id: str


class CommitOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """Commit offsets within the transaction, at the group's coordinator."""

    transactional_id: str
    identity: Identity
    group: GroupIdentity
    offsets: tuple[tuple[TopicPartition, int], ...]


class EndTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """Commit or abort."""

    transactional_id: str
    identity: Identity
    is_commit: bool


Question = InitProducerId | AddPartitions | AddOffsets | CommitOffsets | EndTransaction


# Inputs -----------------------------------------------------------------------------------------------------------------------------------------


class InitAsked(msgspec.Struct, frozen=True):
    """The application begins: take the transactional id."""


class BeginAsked(msgspec.Struct, frozen=True):
    """The application begins a transaction."""


class OffsetsGiven(msgspec.Struct, frozen=True, kw_only=True):
    """The application commits offsets with its transaction."""

    group: GroupIdentity
    offsets: Mapping[TopicPartition, int]


class CommitAsked(msgspec.Struct, frozen=True):
    """The application commits."""


class AbortAsked(msgspec.Struct, frozen=True):
    """The application aborts."""


class CoordinatorFound(msgspec.Struct, frozen=True, kw_only=True):
    """Where a coordinator is, and the finalized transaction.version of the cluster."""

    kind: CoordinatorKind
    broker_id: int
    transaction_version: int = 0


class CoordinatorLost(msgspec.Struct, frozen=True, kw_only=True):
    """FindCoordinator came back with an error; `None`: with no answer at all."""

    kind: CoordinatorKind
    error_code: ErrorCode | None


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The question under way was answered. `errors` where there is one per partition; `identity` where the answer has one."""

    error_code: ErrorCode
    errors: Mapping[TopicPartition, ErrorCode] = {}
    identity: Identity | None = None


class QuestionLost(msgspec.Struct, frozen=True):
    """No answer to the question under way: whether it was carried out is unknown."""


TransactionalInput = (
    InitAsked
    | BeginAsked
    | OffsetsGiven
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


# Effects ----------------------------------------------------------------------------------------------------------------------------------------


class FindCoordinator(msgspec.Struct, frozen=True, kw_only=True):
    """Ask any broker; answer with CoordinatorFound or CoordinatorLost."""

    kind: CoordinatorKind
    key: str


class SendQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """Send a question to a coordinator; answer with Answered or QuestionLost. One is under way at a time."""

    broker_id: int
    question: Question
    is_implicit: bool
    """Whether the transaction is one of transaction.version 2: then the newest versions of requests are used, else those before."""


class TransactionSettled(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction is over for the application."""

    outcome: Outcome
    identity: Identity
    error_code: ErrorCode


class OffsetsAccepted(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets are pending at the group's coordinator."""

    identity: Identity
    group: GroupIdentity
    offsets: tuple[tuple[TopicPartition, int], ...]


class ProducerErred(msgspec.Struct, frozen=True, kw_only=True):
    """The state is ABORTABLE_ERROR or FATAL_ERROR from now on."""

    error_code: ErrorCode
    reason: str
    is_fatal: bool


class IdTaken(msgspec.Struct, frozen=True):
    """The transactional id is this producer's."""

    identity: Identity


TransactionalEffect = (
    FindCoordinator
    | SendQuestion
    | TransactionSettled
    | OffsetsAccepted
    | ProducerErred
    | IdTaken
    | IdentityTaken
    | AskMetadata
    | SendProduce
    | RecordDelivered
    | RecordGivenUp
)

"""How a transactional producer handles an error, by request: a table.

Source: the handlers in org.apache.kafka.clients.producer.internals.TransactionManager; KIP-360,
KIP-588, KIP-890.
"""

from collections.abc import Mapping
from enum import Enum, auto

from kraftsim.core.clients.transaction_steps import (
    AddOffsets,
    AddPartitions,
    CommitOffsets,
    EndTransaction,
    InitProducerId,
    Question,
)
from protocol.errors import ErrorCode


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

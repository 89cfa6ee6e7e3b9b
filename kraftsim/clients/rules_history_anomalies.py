"""Anomalies of a history of clients, and which of them each consistency model forbids.

Source: A. Adya, Weak Consistency, 1999; Elle, VLDB 2020.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kraftsim.clients.rules_history import ClientOperation
from kraftsim.clients.rules_history_graph import Edge


class AnomalyKind(StrEnum):
    """What no order explains, as Adya, Elle and Jepsen call it."""

    GARBAGE_READ = "garbage-read"
    DUPLICATE = "duplicate-elements"
    INCOMPATIBLE_ORDER = "incompatible-order"
    ABORTED_READ = "G1a"
    LOST_APPEND = "lost-append"
    TORN = "torn-transaction"
    ORDER_OF_TIME = "order-of-time"
    LOST_UPDATE = "lost-update"
    WRONG_TOTAL = "wrong-total"
    WRITE_CYCLE = "G0"
    INTERMEDIATE_READ = "G1b"
    CIRCULAR = "G1c"
    SINGLE = "G-single"
    ANTI_DEPENDENCIES = "G2"


_KAFKA: Final = (
    AnomalyKind.GARBAGE_READ,
    AnomalyKind.DUPLICATE,
    AnomalyKind.INCOMPATIBLE_ORDER,
    AnomalyKind.ABORTED_READ,
    AnomalyKind.LOST_APPEND,
    AnomalyKind.TORN,
    AnomalyKind.ORDER_OF_TIME,
    AnomalyKind.LOST_UPDATE,
    AnomalyKind.WRONG_TOTAL,
)
_READ_COMMITTED: Final = (
    *_KAFKA,
    AnomalyKind.WRITE_CYCLE,
    AnomalyKind.INTERMEDIATE_READ,
    AnomalyKind.CIRCULAR,
)
FORBIDDEN: Final[dict[str, tuple[AnomalyKind, ...]]] = {
    "kafka": _KAFKA,
    "read-committed": _READ_COMMITTED,
    "snapshot-isolation": (*_READ_COMMITTED, AnomalyKind.SINGLE),
    "serializable": (*_READ_COMMITTED, AnomalyKind.SINGLE, AnomalyKind.ANTI_DEPENDENCIES),
}
"""Consistency model -> the anomalies that violate it."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly: where (a list, or the first operation of a cycle), and its witness in one line
    per step.
    """

    kind: AnomalyKind
    key: str
    witness: tuple[str, ...]


def said(operation: ClientOperation) -> str:
    """Return how a witness names an operation."""
    return f"{operation.name} of {operation.process}"


def steps(cycle: Sequence[Edge], names: Sequence[str]) -> tuple[str, ...]:
    """Return a cycle as lines, an edge in each."""
    return tuple(
        f"{names[edge.source]} -{edge.kind}-> {names[edge.target]}  ({edge.reason})"
        for edge in cycle
    )

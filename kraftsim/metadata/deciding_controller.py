"""What request handlers and periodic tasks use of a controller.

KRaft's controller has all of it; the controller of a broker in ZooKeeper mode has what the handlers
need that both share.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from kraftsim.core.decision import Decision
from kraftsim.metadata.metadata_writer import AppendedOffsets, MetadataWriter
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.server.call import Answer, Deferred
from kraftsim.server.config import NodeConfig
from kraftsim.server.mutation_quotas import MutationQuotas
from kraftsim.server.shell import NodeShell
from kraftsim.world.interface import World
from protocol.errors import ErrorCode

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

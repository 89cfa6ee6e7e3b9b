"""What authorizer checks read of the node whose requests they check."""

from typing import Protocol

from kraftsim.groups.group_coordinator import GroupTopicsBroker
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.server.serving_broker import ConfiguredBroker


class GuardedBroker(GroupTopicsBroker, ConfiguredBroker, Protocol):
    """A broker with an authorizer: the names of topic ids, whether consumer groups are enabled,
    and whether Metadata creates topics.
    """


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

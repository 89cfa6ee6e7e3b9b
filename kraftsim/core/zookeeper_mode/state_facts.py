"""A controller's state with the interface of an image, so that both are written to znodes by the
same code.

Source: `znode_texts.MetadataFacts`.
"""

from collections.abc import Iterator, Mapping

from kraftsim.core.metadata.controller_state import ControllerState
from kraftsim.core.metadata.registries import Registries
from kraftsim.core.metadata.topic_table import Topic


class StateView:
    """A live view of a state."""

    def __init__(self, state: ControllerState) -> None:
        self._state = state

    @property
    def registries(self) -> Registries:
        """Quotas, credentials, tokens, ACLs."""
        return self._state.registries

    @property
    def next_producer_id(self) -> int | None:
        """The first producer id that is not allocated; None if none was."""
        return self._state.producer_ids.next_producer_id or None

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return a topic by its id, or None."""
        return self._state.replication.topics.topic(topic_id)

    def topics(self) -> Iterator[Topic]:
        """Yield every topic, by name."""
        return self._state.replication.topics.topics()

    def configs_of(self, resource_type: int, resource_name: str) -> Mapping[str, str]:
        """Return the values set on a resource itself."""
        return self._state.configs.configs_of(resource_type, resource_name)

    def configs(self) -> Iterator[tuple[tuple[int, str], Mapping[str, str]]]:
        """Yield the values of every resource with any, by resource."""
        return (
            (resource, self.configs_of(*resource)) for resource in self._state.configs.resources()
        )

"""ListGroups: the groups for which this broker is coordinator.

Source: kafka.coordinator.group.GroupCoordinator.handleListGroups, KIP-518, KIP-848.
"""

from typing import Final, Protocol

from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.groups.rules_classic_group import ClassicGroup
from kraftsim.groups.rules_consumer_group import ConsumerGroup
from kraftsim.server.call import Answer, Call, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k16_list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"


class GroupListingParts(Protocol):
    """What the release decides for ListGroups."""

    @property
    def ignores_case_of_group_states(self) -> bool:
        """Whether the states of a filter may be in any case."""
        ...


class GroupListingBroker(GroupsBroker, Protocol):
    """A broker that lists its groups."""

    @property
    def parts(self) -> GroupListingParts:
        """The replaceable classes of the node."""
        ...


def handle(broker: GroupListingBroker, call: Call) -> Answer:
    """Return the groups that match the state and type filters; COORDINATOR_LOAD_IN_PROGRESS while
    some are being loaded.
    """
    request = call.body
    assert isinstance(request, ListGroupsRequest), "dispatch decodes by API key"
    normalized = str.lower if broker.parts.ignores_case_of_group_states else str
    states = {normalized(state) for state in request.states_filter}
    types = {name.lower() for name in request.types_filter}
    is_loading = False
    rows: list[ListedGroup] = []
    for led in broker.groups.all():
        is_loading = is_loading or led.is_loading
        if not led.is_loading:
            rows += [
                row for row in map(_row, led.shard.all()) if not types or row.group_type in types
            ]
    rows = [row for row in rows if not states or normalized(row.group_state) in states]
    return ListGroupsResponse(
        error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE,
        groups=rows,
    )


def _row(group: ClassicGroup | ConsumerGroup) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(
            group_id=group.group_id,
            protocol_type=CONSUMER,
            group_state=group.state.value,
            group_type=CONSUMER,
        )
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC,
    )


HANDLER = Handler(
    key=ApiKey.LIST_GROUPS,
    handle=handle,
    refuse=lambda call, error: ListGroupsResponse(error_code=error),
)

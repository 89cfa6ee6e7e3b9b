"""StreamsGroupTopologyDescriptionUpdate: refused, because a broker without a plugin for it keeps no
descriptions of topologies, and Apache Kafka brings no plugin.

Source: KIP-1331, kafka.server.KafkaApis.handleStreamsGroupTopologyDescriptionUpdate,
GroupCoordinatorService.throwIfStreamsGroupTopologyDescriptionUpdateInvalid.
"""

from typing import Final

from kraftsim.groups.group_coordinator import GroupsBroker
from kraftsim.server.call import Answer, Call, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k93_streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateResponse,
)

NO_PLUGIN: Final = "The broker has no streams group topology description plugin configured."


def handle(broker: GroupsBroker, call: Call) -> Answer:
    """Return UNSUPPORTED_VERSION."""
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message=NO_PLUGIN if broker.groups.serves_streams else None,
    )


HANDLER = Handler(
    key=ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
    handle=handle,
    refuse=lambda call, error: StreamsGroupTopologyDescriptionUpdateResponse(error_code=error),
)

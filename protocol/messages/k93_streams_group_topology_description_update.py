"""StreamsGroupTopologyDescriptionUpdate (93): a member sends the complete topology of its Kafka
Streams application to the broker.

The broker requests it in a heartbeat response, and stores it for StreamsGroupDescribe.
Source: KIP-1331; StreamsGroupTopologyDescriptionUpdateRequest.json,
StreamsGroupTopologyDescriptionUpdateResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, int8, int16, int32, message, string, struct, structure

ERRORS = (
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNSUPPORTED_VERSION,  # the broker keeps no descriptions
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED,
)


@structure
class TopologyDescriptionNode:
    """A processing node: 1 source, 2 processor, 3 sink; fields of other types are empty."""

    name: str = string()
    node_type: int = int8()
    source_topics: list[str] = array(string)
    sink_topic: str | None = string(nullable="0+", default=None)
    stores: list[str] = array(string)
    successors: list[str] = array(string)


@structure
class TopologyDescriptionSubtopology:
    """The nodes of a subtopology; predecessors follow from the successors."""

    subtopology_id: str = string()
    nodes: list[TopologyDescriptionNode] = array(TopologyDescriptionNode)


@structure
class TopologyDescriptionGlobalStore:
    """A global store, which every member has completely, and its source."""

    source: TopologyDescriptionNode = struct(TopologyDescriptionNode)
    processor: TopologyDescriptionNode = struct(TopologyDescriptionNode)


@structure
class TopologyDescription:
    """The complete topology."""

    subtopologies: list[TopologyDescriptionSubtopology] = array(TopologyDescriptionSubtopology)
    global_stores: list[TopologyDescriptionGlobalStore] = array(TopologyDescriptionGlobalStore)


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateRequest:
    """For the topology with this very epoch."""

    group_id: str = string()
    member_id: str = string()
    topology_epoch: int = int32()
    topology_description: TopologyDescription = struct(TopologyDescription)


@message(key=93, versions="0", flexible="0+")
class StreamsGroupTopologyDescriptionUpdateResponse:
    """Whether the description is stored."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)

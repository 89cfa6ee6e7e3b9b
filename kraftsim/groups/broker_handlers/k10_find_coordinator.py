"""FindCoordinator: the coordinator of a group or a transactional id; creates the coordinator's
internal topic if it is missing.

Source: kafka.server.KafkaApis.{handleFindCoordinatorRequest, getCoordinator}, KIP-699; texts and
codes verified against Apache Kafka 3.9.1.
"""

from typing import Final, Protocol

from kraftsim.groups.group_coordinator import GroupTopicsBroker
from kraftsim.metadata.rules_topic_names import (
    GROUP_METADATA,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from kraftsim.metadata.topic_creation import CreatingBroker
from kraftsim.releases.traits import (
    PARSES_SHARE_KEYS,
    REFUSES_SHARE_KEYS,
    SHARE_KEYS_HAVE_COLONS,
)
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import AddressBroker, BrokerAddress, ReleaseBroker
from kraftsim.server.slices import Slices
from kraftsim.share_groups.rules_share_states import SharePartitionKey
from kraftsim.share_groups.state_answers import SharesBroker
from kraftsim.transactions.transaction_coordinator import TransactionsBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k10_find_coordinator import (
    GROUP,
    NO_NODE_ID,
    SHARE,
    TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.storage.text_files import parse_int32
from protocol.uuids import parse_uuid_text

FIRST_VERSION_WITH_MANY: Final = 4
FIRST_VERSION_WITH_SHARES: Final = 6
NO_PORT: Final = -1
KEY_SEPARATOR: Final = ":"
SHARE_KEY_TOKENS: Final = 3
NO_ERROR: Final = "NONE"
NOT_AVAILABLE: Final = "The coordinator is not available."
MALFORMED: Final = (
    "This most likely occurs because of a request being malformed by the client library or the "
    "message was sent to an incompatible broker. See the broker logs for more details."
)
MESSAGES: Final = {
    ErrorCode.NONE: NO_ERROR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: NOT_AVAILABLE,
    ErrorCode.INVALID_REQUEST: MALFORMED,
}
Found = tuple[int, BrokerAddress] | ErrorCode


class FindingBroker(
    GroupTopicsBroker,
    TransactionsBroker,
    SharesBroker,
    CreatingBroker,
    AddressBroker,
    ReleaseBroker,
    Protocol,
):
    """A broker that finds the coordinators of groups, transactional ids and share-partitions."""


def handle(broker: FindingBroker, call: Call) -> Answer:
    """Return for each key a broker, COORDINATOR_NOT_AVAILABLE or INVALID_REQUEST."""
    request = call.body
    assert isinstance(request, FindCoordinatorRequest), "dispatch decodes by API key"
    if call.api_version < FIRST_VERSION_WITH_MANY:
        found = _find(broker, call, request.key_type, request.key)
        if isinstance(found, ErrorCode):
            return refuse(call, found)
        node_id, address = found
        return FindCoordinatorResponse(
            error_code=ErrorCode.NONE,
            error_message=NO_ERROR,
            node_id=node_id,
            host=address.host,
            port=address.port,
        )
    rows = [
        _row(request.key_type, key, _find(broker, call, request.key_type, key))
        for key in request.coordinator_keys
    ]
    return FindCoordinatorResponse(coordinators=rows)


def _find(broker: FindingBroker, call: Call, key_type: int, key: str) -> Found:
    if key_type == SHARE and call.api_version >= FIRST_VERSION_WITH_SHARES:
        name, number = SHARE_GROUP_STATE, _share_partition(broker, key)
    elif key_type == TRANSACTION:
        name, number = TRANSACTION_STATE, broker.transactions.partitions.partition_of(key)
    elif key_type == GROUP:
        name, number = GROUP_METADATA, broker.groups.partition_of(key)
    else:
        return ErrorCode.INVALID_REQUEST
    if isinstance(number, ErrorCode):
        return number
    topic = broker.image.topic(name)
    if topic is None:
        broker.creation.create([name])
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    leader = topic.partitions[number].leader
    address = broker.address_of(leader, call.listener)
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if address is None else (leader, address)


def _share_partition(broker: FindingBroker, key: str) -> int | ErrorCode:
    """Return the partition of a share coordinator key, or the error of one that has none: before
    4.1 no broker coordinates share groups.
    """
    has = broker.parts.release.has
    if not has(PARSES_SHARE_KEYS):
        return (
            ErrorCode.INVALID_REQUEST
            if has(REFUSES_SHARE_KEYS)
            else ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
    parsed = _share_key(key, has_colons=has(SHARE_KEYS_HAVE_COLONS))
    return ErrorCode.INVALID_REQUEST if parsed is None else broker.shares.partition_of(parsed)


def _share_key(key: str, *, has_colons: bool) -> str | None:
    """Return a key of the form group:topicId:partition as the coordinator hashes it; None if it is
    none. With colons in the group id since 4.2, before with spaces around it that do not count.
    """
    tokens = key.rstrip(KEY_SEPARATOR).split(KEY_SEPARATOR)
    if len(tokens) < SHARE_KEY_TOKENS or (len(tokens) > SHARE_KEY_TOKENS and not has_colons):
        return None
    *group, topic_id, partition = tokens
    group_id = KEY_SEPARATOR.join(group)
    try:
        share_partition = SharePartitionKey(
            group_id if has_colons else group_id.strip(),
            parse_uuid_text(topic_id),
            parse_int32(partition),
        )
    except ValueError:
        return None
    return share_partition.coordinator_key if group_id.strip() else None


def _row(key_type: int, key: str, found: Found) -> Coordinator:
    if isinstance(found, ErrorCode):
        message = MALFORMED if found is ErrorCode.INVALID_REQUEST and key_type != SHARE else ""
        return Coordinator(
            key=key,
            node_id=NO_NODE_ID,
            host="",
            port=NO_PORT,
            error_code=found,
            error_message=message,
        )
    node_id, address = found
    return Coordinator(
        key=key,
        node_id=node_id,
        host=address.host,
        port=address.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Return a response with the same error for every key."""
    request = call.body
    assert isinstance(request, FindCoordinatorRequest), "dispatch decodes by API key"
    if call.api_version >= FIRST_VERSION_WITH_MANY:
        return FindCoordinatorResponse(
            coordinators=[_row(request.key_type, key, error) for key in request.coordinator_keys]
        )
    message = MESSAGES.get(error)
    return FindCoordinatorResponse(
        error_code=error, error_message=message, node_id=NO_NODE_ID, host="", port=NO_PORT
    )


SLICES = Slices(entries="coordinator_keys", rows="coordinators")
HANDLER = Handler(key=ApiKey.FIND_COORDINATOR, handle=handle, refuse=refuse, slices=SLICES)

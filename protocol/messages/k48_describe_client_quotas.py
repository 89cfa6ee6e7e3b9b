"""DescribeClientQuotas (48): the quotas of users, client ids and addresses.

Source: KIP-546, KIP-612 (quotas per address); DescribeClientQuotasRequest.json,
DescribeClientQuotasResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, float64, int8, int16, int32, message, string, structure

EXACT_NAME = 0
DEFAULT_ENTITY = 1  # what holds for all that have no quota of their own
ANY_NAME = 2

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.UNSUPPORTED_VERSION,  # a type of entity that the server does not know
    ErrorCode.INVALID_REQUEST,  # a type twice, or a name that does not go with the way of matching
)


@structure
class ComponentData:
    """A filter for one type of entity ("user", "client-id", "ip"); match is the name for
    EXACT_NAME, else null.
    """

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    """Quotas must match every filter.

    Strict also leaves out those for combinations with further types.
    """

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


@structure
class ValueData:
    """A quota, such as producer_byte_rate."""

    key: str = string()
    value: float = float64()


@structure
class EntityData:
    """One part of the entity's name; null is the default of its type."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@structure
class EntryData:
    """The quotas of one entity."""

    entity: list[EntityData] = array(EntityData)
    values: list[ValueData] = array(ValueData)


@message(key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    """Null instead of entries with an error."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")

"""AlterClientQuotas (49): set and remove quotas of users, client ids and addresses.

Source: KIP-546, KIP-612 (quotas per address); AlterClientQuotasRequest.json,
AlterClientQuotasResponse.json.
"""

from protocol.errors import ErrorCode
from protocol.schema import array, boolean, float64, int16, int32, message, string, structure

ERRORS = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.NOT_CONTROLLER,
    # an entity or a quota twice, or a combination or value that cannot be
    ErrorCode.INVALID_REQUEST,
)


@structure
class EntityData:
    """One part of the entity's name; null is the default of its type."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@structure
class OpData:
    """Set a quota to a value, or remove it (the value then has no meaning)."""

    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@structure(kafka_name="EntryData")
class QuotaAlteration:
    """The operations on one entity succeed or fail together.

    Users and client ids can be combined, an address cannot.
    """

    entity: list[EntityData] = array(EntityData)
    ops: list[OpData] = array(OpData)


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    """validate_only validates without changing anything."""

    entries: list[QuotaAlteration] = array(QuotaAlteration)
    validate_only: bool = boolean()


@structure(kafka_name="EntryData")
class QuotaAlterationResult:
    """The result of one entity."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[EntityData] = array(EntityData)


@message(key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    """One result per entity, in the server's own order."""

    throttle_time_ms: int = int32()
    entries: list[QuotaAlterationResult] = array(QuotaAlterationResult)

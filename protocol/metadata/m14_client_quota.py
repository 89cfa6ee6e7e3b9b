"""ClientQuotaRecord (14): a quota of a user, a client id, or an address is set or deleted.

Source: KIP-546, KIP-631, ClientQuotaRecord.json.
"""

from protocol.schema import array, boolean, float64, message, string, structure


@structure
class EntityData:
    """A part of the quota's entity; null means the default of that type."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@message(key=14, kind="metadata", versions="0", flexible="0+")
class ClientQuotaRecord:
    """One key of one entity."""

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()

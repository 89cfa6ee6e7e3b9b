"""AccessControlEntryRecord (18): an ACL was created (3.2).

Source: KIP-801, AccessControlEntryRecord.json.
"""

from protocol.schema import int8, message, string, uuid


@message(key=18, kind="metadata", versions="0", flexible="0+")
class AccessControlEntryRecord:
    """The values are those of Kafka's ResourceType, PatternType, AclOperation and
    AclPermissionType.
    """

    id: bytes = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()

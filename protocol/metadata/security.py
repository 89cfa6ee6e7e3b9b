"""Records of ACLs, SCRAM credentials and delegation tokens.

Source: KIP-48, KIP-801, KIP-900; the JSON definitions named at each record.
"""

from protocol.schema import array, byte_string, int8, int32, int64, message, string, uuid

# --------------------------------------------------------------------------------------------------
# DelegationTokenRecord (10): a delegation token was created or renewed (3.6).
#
# Source: KIP-48, KAFKA-15219, DelegationTokenRecord.json.


@message(key=10, kind="metadata", versions="0", flexible="0+")
class DelegationTokenRecord:
    """Timestamps are milliseconds since 1970; the secret is not included, every node derives it
    from its own key.
    """

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()


# --------------------------------------------------------------------------------------------------
# UserScramCredentialRecord (11): the data to verify a SCRAM password (3.5).
#
# Source: KIP-900, UserScramCredentialRecord.json.

SCRAM_SHA_256 = 1
SCRAM_SHA_512 = 2


@message(key=11, kind="metadata", versions="0", flexible="0+")
class UserScramCredentialRecord:
    """The password itself is not stored."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = byte_string()
    stored_key: bytes = byte_string()
    server_key: bytes = byte_string()
    iterations: int = int32()


# --------------------------------------------------------------------------------------------------
# AccessControlEntryRecord (18): an ACL was created (3.2).
#
# Source: KIP-801, AccessControlEntryRecord.json.


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


# --------------------------------------------------------------------------------------------------
# RemoveAccessControlEntryRecord (19): an entry of record 18 was deleted.
#
# Source: KIP-801, RemoveAccessControlEntryRecord.json.


@message(key=19, kind="metadata", versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    """By the id of the entry."""

    id: bytes = uuid()


# --------------------------------------------------------------------------------------------------
# RemoveUserScramCredentialRecord (22): a SCRAM credential was deleted.
#
# Source: KIP-900, RemoveUserScramCredentialRecord.json.


@message(key=22, kind="metadata", versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """One mechanism of one user."""

    name: str = string()
    mechanism: int = int8()


# --------------------------------------------------------------------------------------------------
# RemoveDelegationTokenRecord (26): a delegation token expired or was deleted.
#
# Source: KIP-48, KAFKA-15219, RemoveDelegationTokenRecord.json.


@message(key=26, kind="metadata", versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    """By the id of the token."""

    token_id: str = string()

"""Enum values of ACLs: in the requests 29 to 31, and in the records of the metadata log.

Kept apart from the messages because five of them share these enums, and because a filter has values
that an entry cannot have (ANY, MATCH).
Source: KIP-140, KIP-290 (PREFIXED), KIP-373 (USER), KIP-939 (TWO_PHASE_COMMIT);
org.apache.kafka.common.acl and org.apache.kafka.common.resource.
"""

from enum import IntEnum, unique


@unique
class AclResourceType(IntEnum):
    """The type of a resource."""

    UNKNOWN = 0
    ANY = 1
    """Of filters only."""
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    """Has one resource, `kafka-cluster`."""
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


@unique
class AclPatternType(IntEnum):
    """The pattern type of an entry's resource name."""

    UNKNOWN = 0
    ANY = 1
    """Of filters only: a pattern of either type with exactly this name."""
    MATCH = 2
    """Of filters only: every pattern that covers a resource of this name."""
    LITERAL = 3
    PREFIXED = 4


@unique
class AclOperation(IntEnum):
    """An operation on the resource; also the number of its bit in `authorized_operations`."""

    UNKNOWN = 0
    ANY = 1
    """Of filters only."""
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


@unique
class AclPermissionType(IntEnum):
    """Whether the operation is permitted; one DENY overrides every ALLOW."""

    UNKNOWN = 0
    ANY = 1
    """Of filters only."""
    DENY = 2
    ALLOW = 3

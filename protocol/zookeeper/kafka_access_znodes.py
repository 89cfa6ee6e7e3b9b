"""Security data of Apache Kafka in ZooKeeper: ACLs, SCRAM credentials, delegation tokens, the names
of entities.

Source: kafka.zk.{ZkAclStore, ResourceZNode, DelegationTokenInfoZNode}, AclEntry,
DelegationTokenManagerZk, ScramCredentialUtils, Sanitizer.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_plus

from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.malformed import MalformedMessage
from protocol.message_json import Json
from protocol.zookeeper.kafka_znodes import (
    immutable_map_order,
    integer_of,
    json_text,
    nullable_text_of,
    parse_object,
    texts_of,
)

ACLS: Final = "/kafka-acl"
EXTENDED_ACLS: Final = "/kafka-acl-extended"
ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"
ACL_CHANGE: Final = "acl_changes_"
DELEGATION_TOKENS: Final = "/delegation_token/tokens"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"
TOKEN_CHANGE: Final = f"{TOKEN_CHANGES}/token_change_"
RESOURCE_TYPES: Final = (
    AclResourceType.TOPIC,
    AclResourceType.GROUP,
    AclResourceType.CLUSTER,
    AclResourceType.TRANSACTIONAL_ID,
    AclResourceType.DELEGATION_TOKEN,
    AclResourceType.USER,
)
MECHANISMS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
TOKEN_VERSION: Final = 3


def sanitized(name: str) -> str:
    """Return an entity name as the name of a znode."""
    return quote(name, safe="").replace("~", "%7E")


def desanitized(name: str) -> str:
    """Return the entity name of a znode."""
    return unquote_plus(name)


def pascal_case(name: str) -> str:
    """Return the form of an ACL enum name in znodes: TransactionalId."""
    return "".join(word.capitalize() for word in name.split("_"))


def acl_root(pattern: AclPatternType) -> str:
    """Return the path of the ACLs of a pattern type."""
    return ACLS if pattern is AclPatternType.LITERAL else f"{EXTENDED_ACLS}/{pattern.name.lower()}"


def acl_path(resource: AclResourceType, pattern: AclPatternType, name: str) -> str:
    """Return the path of the ACLs of a resource."""
    return f"{acl_root(pattern)}/{pascal_case(resource.name)}/{name}"


def acl_change_path(pattern: AclPatternType) -> str:
    """Return the path of ACL change notifications; a sequence number is appended to it."""
    return (
        f"{ACL_CHANGES if pattern is AclPatternType.LITERAL else EXTENDED_ACL_CHANGES}/{ACL_CHANGE}"
    )


def build_acl_change(resource: AclResourceType, pattern: AclPatternType, name: str) -> bytes:
    """Return the text of a notification for the resource whose ACLs have changed."""
    if pattern is AclPatternType.LITERAL:
        return f"{resource.name}:{name}".encode()
    return json_text(
        {"version": 1, "resourceType": resource.name, "name": name, "patternType": pattern.name}
    )


def parse_acl_change(data: bytes) -> tuple[AclResourceType, AclPatternType, str]:
    """Decode the resource. Raises MalformedMessage."""
    try:
        if not data.startswith(b"{"):
            kind, _, name = data.decode().partition(":")
            return AclResourceType[kind.upper()], AclPatternType.LITERAL, name
        found = parse_object(data, EXTENDED_ACL_CHANGES)
        return (
            AclResourceType[str(found.get("resourceType"))],
            AclPatternType[str(found.get("patternType"))],
            str(found.get("name")),
        )
    except (KeyError, UnicodeDecodeError) as unknown:
        raise MalformedMessage(None, None, ACL_CHANGES, f"{data!r} names no resource") from unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRule:
    """One ACL of a resource."""

    principal: str
    permission: AclPermissionType
    operation: AclOperation
    host: str


def build_acls(rules: Sequence[AclRule]) -> bytes:
    """Return the text of all ACLs of a resource."""
    rows: list[Json] = [
        {
            "principal": rule.principal,
            "permissionType": pascal_case(rule.permission.name),
            "host": rule.host,
            "operation": pascal_case(rule.operation.name),
        }
        for rule in rules
    ]
    return json_text({"acls": rows, "version": 1})


def parse_acls(data: bytes | None) -> list[AclRule]:
    """Decode the ACLs of a resource. Raises MalformedMessage."""
    rows = parse_object(data, ACLS).get("acls") if data else []
    if not isinstance(rows, list):
        raise MalformedMessage(None, None, ACLS, "acls is no list")
    try:
        return [
            AclRule(
                principal=str(row["principal"]),
                permission=AclPermissionType[str(row["permissionType"]).upper()],
                operation=_OPERATIONS[str(row["operation"]).upper()],
                host=str(row["host"]),
            )
            for row in rows
            if isinstance(row, dict)
        ]
    except KeyError as missing:
        raise MalformedMessage(
            None, None, ACLS, f"a rule lacks or does not know {missing}"
        ) from missing


_OPERATIONS: Final = {pascal_case(operation.name).upper(): operation for operation in AclOperation}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramText:
    """A SCRAM credential, as the value of a user's configuration with the name of the mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def build(self) -> str:
        """Return the text."""
        salt, stored, server = (
            base64.b64encode(part).decode()
            for part in (self.salt, self.stored_key, self.server_key)
        )
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def parse(cls, text: str) -> "ScramText":
        """Decode the text. Raises MalformedMessage."""
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            return cls(
                salt=base64.b64decode(parts["salt"]),
                stored_key=base64.b64decode(parts["stored_key"]),
                server_key=base64.b64decode(parts["server_key"]),
                iterations=int(parts["iterations"]),
            )
        except (KeyError, ValueError) as wrong:
            raise MalformedMessage(
                None, None, "SCRAM credential", f"no credential: {wrong}"
            ) from wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenZnode:
    """A token without its secret; times are ms since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: Sequence[str]
    issue_timestamp: int
    max_timestamp: int
    expiry_timestamp: int

    def build(self) -> bytes:
        """Return the text."""
        found: dict[str, Json] = {
            "version": TOKEN_VERSION,
            "owner": sanitized(self.owner),
            "tokenRequester": sanitized(self.requester),
            "renewers": [sanitized(renewer) for renewer in self.renewers],
            "issueTimestamp": self.issue_timestamp,
            "maxTimestamp": self.max_timestamp,
            "expiryTimestamp": self.expiry_timestamp,
            "tokenId": self.token_id,
        }
        return json_text({name: found[name] for name in immutable_map_order(list(found))})

    @classmethod
    def parse(cls, data: bytes) -> "DelegationTokenZnode":
        """Decode the text; before version 3 the owner is the requester. Raises MalformedMessage."""
        found = parse_object(data, DELEGATION_TOKENS)
        owner = desanitized(nullable_text_of(found, "owner") or "")
        requester = nullable_text_of(found, "tokenRequester")
        return cls(
            token_id=nullable_text_of(found, "tokenId") or "",
            owner=owner,
            requester=owner if requester is None else desanitized(requester),
            renewers=[
                desanitized(renewer) for renewer in texts_of(found.get("renewers"), "renewers")
            ],
            issue_timestamp=integer_of(found, "issueTimestamp"),
            max_timestamp=integer_of(found, "maxTimestamp"),
            expiry_timestamp=integer_of(found, "expiryTimestamp"),
        )


def token_path(token_id: str) -> str:
    """Return the path of a token."""
    return f"{DELEGATION_TOKENS}/{token_id}"

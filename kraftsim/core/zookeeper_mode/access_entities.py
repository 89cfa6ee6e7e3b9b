"""An ACL znode as records: the changes to the image.

In ZooKeeper ACLs have no ids; those of their records are derived from the contents.
Source: kafka.security.authorizer.AclAuthorizer, kafka.zk.ZkAclStore.
"""

from hashlib import sha256

from kraftsim.core.metadata.image import MetadataImage
from kraftsim.core.metadata.record_kinds import MetadataRecord
from protocol.acls import AclPatternType, AclResourceType
from protocol.metadata.m18_access_control_entry import AccessControlEntryRecord
from protocol.metadata.m19_remove_access_control_entry import RemoveAccessControlEntryRecord
from protocol.zookeeper.kafka_access_znodes import (
    ACLS,
    EXTENDED_ACLS,
    AclRule,
    parse_acls,
    pascal_case,
)

UUID_BYTES = 16
Resource = tuple[AclResourceType, AclPatternType, str]
"""Resource type, pattern type, and name."""


def access_changes(
    resource: Resource, data: bytes | None, image: MetadataImage
) -> list[MetadataRecord]:
    """Return the changes from the image to the ACLs in a resource's znode; without data there are
    no ACLs.

    Raises MalformedMessage.
    """
    wanted = {
        record.id: record
        for record in (_record(resource, rule) for rule in (parse_acls(data) if data else ()))
    }
    present = {record.id: record for record in image.registries.access_rules.of_group(resource)}
    gone: list[MetadataRecord] = [
        RemoveAccessControlEntryRecord(id=rule_id) for rule_id in present if rule_id not in wanted
    ]
    return [*gone, *(record for rule_id, record in wanted.items() if rule_id not in present)]


def resource_of_path(path: str) -> Resource | None:
    """Return the resource of an ACL znode: `/kafka-acl/Topic/t`,
    `/kafka-acl-extended/prefixed/Topic/t`; None for their parents.
    """
    for root, pattern in (
        (f"{ACLS}/", AclPatternType.LITERAL),
        (f"{EXTENDED_ACLS}/prefixed/", AclPatternType.PREFIXED),
    ):
        if path.startswith(root):
            kind, _, name = path.removeprefix(root).partition("/")
            types = [each for each in AclResourceType if pascal_case(each.name) == kind]
            return (types[0], pattern, name) if types and name else None
    return None


def _record(resource: Resource, rule: AclRule) -> AccessControlEntryRecord:
    resource_type, pattern, name = resource
    said = "\0".join(
        (
            str(int(resource_type)),
            str(int(pattern)),
            name,
            rule.principal,
            rule.host,
            str(int(rule.operation)),
            str(int(rule.permission)),
        )
    )
    return AccessControlEntryRecord(
        id=sha256(said.encode()).digest()[:UUID_BYTES],
        resource_type=int(resource_type),
        resource_name=name,
        pattern_type=int(pattern),
        principal=rule.principal,
        host=rule.host,
        operation=int(rule.operation),
        permission_type=int(rule.permission),
    )

"""Creation, description and deletion of ACLs.

Source: KIP-140, KIP-290, KIP-801, org.apache.kafka.controller.AclControlManager,
kafka.server.AclApis, ResourcePatternFilter.matches.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from kraftsim.core.decision import Decision, Refusal
from kraftsim.core.metadata.registries import Registries
from kraftsim.core.security.authorizer import CLUSTER_NAME, Rule
from kraftsim.core.security.rule_search import Filter, RuleSearch
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k29_describe_acls import DescribeAclsRequest
from protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest
from protocol.messages.k31_delete_acls import DeleteAclsRequest
from protocol.metadata.m18_access_control_entry import AccessControlEntryRecord
from protocol.metadata.m19_remove_access_control_entry import RemoveAccessControlEntryRecord

FilterResult: TypeAlias = "Refusal | list[Rule]"
PATTERN_TYPES: Final = frozenset(map(int, AclPatternType)) - {0}
PERMISSIONS: Final = frozenset(map(int, AclPermissionType)) - {0}
FOUND_MAX: Final = 100_000
"""The maximum number of ACLs in a DeleteAcls response; the filter that reaches it is answered in
full, later ones fail.
"""
TOO_MANY: Final = Refusal(
    ErrorCode.POLICY_VIOLATION, f"The filters before this one match {FOUND_MAX} or more ACLs."
)
OF_FILTERS: Final = (0, 1)
"""UNKNOWN and ANY, in all four enumerations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRights:
    """The enumeration values of a release; any other one is UNKNOWN."""

    resource_types: frozenset[int]
    operations: frozenset[int]

    @classmethod
    def made(cls, *, has_users: bool = True, has_two_phase_commit: bool = True) -> "KnownRights":
        """`has_users`: since KIP-373 (3.3). `has_two_phase_commit`: since KIP-939 (4.1)."""
        resource_types, operations = set(map(int, AclResourceType)), set(map(int, AclOperation))
        if not has_users:
            resource_types -= {AclResourceType.USER}
            operations -= {AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS}
        if not has_two_phase_commit:
            operations -= {AclOperation.TWO_PHASE_COMMIT}
        return cls(
            resource_types=frozenset(resource_types) - {0}, operations=frozenset(operations) - {0}
        )


def decide_create_rules(
    registries: Registries,
    creations: Sequence[AclCreation],
    new_id: Callable[[], bytes],
    rights: KnownRights,
) -> Decision[list[Refusal | None]]:
    """Create ACLs; an existing one is no error. One result per ACL, in the order of the request."""
    known = {_key(rule) for rule in registries.access_rules.records()}
    records: list[AccessControlEntryRecord] = []
    results: list[Refusal | None] = []
    for creation in creations:
        refusal = _refuse(creation, rights)
        results.append(refusal)
        if refusal is not None:
            continue
        rule = AccessControlEntryRecord(
            id=new_id(),
            resource_type=creation.resource_type,
            resource_name=creation.resource_name,
            pattern_type=creation.resource_pattern_type,
            principal=creation.principal,
            host=creation.host,
            operation=creation.operation,
            permission_type=creation.permission_type,
        )
        if _key(rule) not in known:
            known.add(_key(rule))
            records.append(rule)
    return Decision(records, results)


def holds_filters(creations: Sequence[AclCreation]) -> bool:
    """Return whether an ACL has a value that only filters may have: Kafka then fails the whole
    request.
    """
    return any(
        each.resource_type in OF_FILTERS
        or each.resource_pattern_type in (*OF_FILTERS, AclPatternType.MATCH)
        or each.operation in OF_FILTERS
        or each.permission_type in OF_FILTERS
        for each in creations
    )


def decide_delete_rules(
    registries: Registries, filters: Sequence[Filter], rights: KnownRights
) -> Decision[list[FilterResult]]:
    """Delete the ACLs that match any filter.

    One result per filter: the ACLs, or the error of the filter.

    The number of matches of all filters in one request is bounded: ACLs times filters may be any
    number.
    """
    search = RuleSearch(registries.access_rules.records())
    results: list[FilterResult] = []
    rows = 0
    for each in filters:
        refusal = _refuse_filter(each, rights) or (TOO_MANY if rows >= FOUND_MAX else None)
        found = search.found(each) if refusal is None else []
        rows += len(found)
        results.append(found if refusal is None else refusal)
    gone = dict.fromkeys(
        rule.id for result in results if not isinstance(result, Refusal) for rule in result
    )
    return Decision([RemoveAccessControlEntryRecord(id=each) for each in gone], results)


def _key(rule: Rule) -> tuple[int, str, int, str, str, int, int]:
    return (
        rule.resource_type,
        rule.resource_name,
        rule.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )


def _refuse(creation: AclCreation, rights: KnownRights) -> Refusal | None:
    if creation.resource_type == AclResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        return _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not creation.resource_name:
        return _invalid("Invalid empty resource name")
    refusal = _refuse_unknown(creation, rights)
    if refusal is None and ":" not in creation.principal:
        return _invalid(
            f"Could not parse principal from `{creation.principal}` (no colon is present "
            "separating the principal type from the principal name)"
        )
    return refusal


def _refuse_unknown(creation: AclCreation, rights: KnownRights) -> Refusal | None:
    """Return the error of unknown enumeration values: Kafka reads them as UNKNOWN, and an
    authorizer could not evaluate them.
    """
    for what, value, known in (
        ("resourceType", creation.resource_type, rights.resource_types),
        ("patternType", creation.resource_pattern_type, PATTERN_TYPES),
        ("operation", creation.operation, rights.operations),
        ("permissionType", creation.permission_type, PERMISSIONS),
    ):
        if value not in known:
            return _invalid(f"Invalid {what} UNKNOWN")
    return None


def holds_unknown(body: DescribeAclsRequest | CreateAclsRequest | DeleteAclsRequest) -> bool:
    """Return whether a request has UNKNOWN (0) in an enumeration: Kafka fails to parse it, and
    closes the connection.
    """
    if isinstance(body, CreateAclsRequest):
        return any(
            0
            in (
                each.resource_type,
                each.resource_pattern_type,
                each.operation,
                each.permission_type,
            )
            for each in body.creations
        )
    filters = body.filters if isinstance(body, DeleteAclsRequest) else [body]
    return any(
        0
        in (
            each.resource_type_filter,
            each.pattern_type_filter,
            each.operation,
            each.permission_type,
        )
        for each in filters
    )


def _refuse_filter(asked: Filter, rights: KnownRights) -> Refusal | None:
    if (
        asked.resource_type_filter not in rights.resource_types
        or asked.pattern_type_filter not in PATTERN_TYPES
    ):
        return _invalid("Unknown patternFilter.")
    is_known = asked.operation in rights.operations and asked.permission_type in PERMISSIONS
    return None if is_known else _invalid("Unknown entryFilter.")


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, why)

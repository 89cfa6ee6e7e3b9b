"""Enum values in ACL requests (29 to 31): in filters, in ACLs, and unknown ones.

Source: KIP-140, KIP-290, KIP-373, KIP-939; CreateAclsRequest, DeleteAclsRequest,
DescribeAclsRequest, AclControlManager; verified against Apache Kafka 3.9.1 and 4.4.0.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TypeVar

from kraftsim.conformance.expect import expect_equal, settled
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.security_rights import (
    ACL_VERSION,
    DENY,
    LITERAL,
    PREFIXED,
    TRANSACTION,
    as_alice,
    create,
    delete,
    described_acls,
    require_authorizer,
    rule,
)
from kraftsim.conformance.target import Target
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse
from protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest
from protocol.messages.k31_delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.schema import Message

REQUIREMENTS = Requirements("security", 9, "Enum values in ACLs and filters")
INVALID = int(ErrorCode.INVALID_REQUEST)
UNKNOWN, NO_SUCH = 0, (-128, -1, 99, 127)
ANY = 1
OF_RULES = {
    "resource_type": "resourceType",
    "resource_pattern_type": "patternType",
    "operation": "operation",
    "permission_type": "permissionType",
}
"""Field of CreateAcls -> Kafka's name of it."""
OF_FILTERS = {
    "resource_type_filter": "Unknown patternFilter.",
    "pattern_type_filter": "Unknown patternFilter.",
    "operation": "Unknown entryFilter.",
    "permission_type": "Unknown entryFilter.",
}
"""Field of a filter -> the error message for an unknown value."""
MATCHING = {"pattern_type_filter": int(AclPatternType.MATCH)}
PATTERN_TYPES_SINCE = 1
"""The first version of all three requests that has pattern types."""
F = TypeVar("F", DescribeAclsRequest, DeleteAclsFilter)


def filtering(cls: type[F], numbers: Mapping[str, int], name: str | None = None) -> F:
    """Return a filter that matches everything but for the given fields."""
    made = cls(
        resource_type_filter=ANY,
        resource_name_filter=name,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
    )
    made.operation = made.permission_type = ANY
    for field, number in numbers.items():
        setattr(made, field, number)
    return made


def requests(target: Target, numbers: tuple[int, ...]) -> Iterator[tuple[str, int, Message]]:
    """Yield each request with a value in one field: its description, its version, the request."""
    for number in numbers:
        for field in OF_FILTERS:
            name = target.fresh_name()
            for version in target.versions(ApiKey.DESCRIBE_ACLS, since=PATTERN_TYPES_SINCE):
                yield (
                    f"DescribeAcls v{version} with {field} {number}",
                    version,
                    filtering(DescribeAclsRequest, {field: number}, name),
                )
            for version in target.versions(ApiKey.DELETE_ACLS, since=PATTERN_TYPES_SINCE):
                asked = DeleteAclsRequest(
                    filters=[filtering(DeleteAclsFilter, {field: number}, name)]
                )
                yield f"DeleteAcls v{version} with {field} {number}", version, asked
        for field in OF_RULES:
            made = rule(target.fresh_name(), AclOperation.READ)
            setattr(made, field, number)
            for version in target.versions(ApiKey.CREATE_ACLS, since=PATTERN_TYPES_SINCE):
                yield (
                    f"CreateAcls v{version} with {field} {number}",
                    version,
                    CreateAclsRequest(creations=[made]),
                )


@REQUIREMENTS.that(
    1,
    "0 (UNKNOWN) in any field of DescribeAcls, CreateAcls or DeleteAcls closes the connection, "
    "with any ACLs",
    source="AbstractRequest",
)
def unknown(target: Target) -> None:
    require_authorizer(target)
    for what, version, asked in requests(target, (UNKNOWN,)):
        with target.peer() as peer:
            peer.send(asked, version)
            expect_equal(
                peer.is_closed_by_node(), True, f"whether the connection ends after {what}"
            )
    for asked in (
        filtering(DescribeAclsRequest, {"operation": UNKNOWN}),
        CreateAclsRequest(creations=[rule("t", AclOperation.UNKNOWN)]),
    ):
        with as_alice(target) as peer:
            peer.send(asked, ACL_VERSION)
            expect_equal(
                peer.is_closed_by_node(),
                True,
                "whether the connection of a client without ACLs ends",
            )


@REQUIREMENTS.that(
    2,
    "an unknown enum value matches nothing in DescribeAcls, and returns INVALID_REQUEST in "
    "DeleteAcls and CreateAcls, for its row only",
    source="AclControlManager",
)
def no_number(target: Target) -> None:
    require_authorizer(target)
    good = rule(target.fresh_name(), AclOperation.READ)
    with target.peer() as peer:
        for number in NO_SUCH:
            for field, why in OF_FILTERS.items():
                described = peer.ask(
                    filtering(DescribeAclsRequest, {field: number}),
                    ACL_VERSION,
                    DescribeAclsResponse,
                )
                expect_equal(
                    (described.error_code, described.resources),
                    (0, []),
                    f"DescribeAcls with {field} {number}",
                )
                wrong, none = (
                    filtering(DeleteAclsFilter, {field: number}),
                    filtering(DeleteAclsFilter, {}, target.fresh_name()),
                )
                rows = peer.ask(
                    DeleteAclsRequest(filters=[wrong, none]), ACL_VERSION, DeleteAclsResponse
                ).filter_results
                found = [(row.error_code, row.error_message, row.matching_acls) for row in rows]
                expect_equal(
                    found,
                    [(INVALID, why, []), (0, None, [])],
                    f"DeleteAcls with {field} {number}, and with a filter",
                )
            for field, word in OF_RULES.items():
                made = rule("t", AclOperation.READ)
                setattr(made, field, number)
                found_rows = create(target, made, good)
                expect_equal(
                    found_rows,
                    [(INVALID, f"Invalid {word} UNKNOWN"), (0, "")],
                    f"CreateAcls with {field} {number}, and with a rule",
                )
    delete(target, good.resource_name)


@REQUIREMENTS.that(
    3,
    "a filter matches ACLs by every field: by its value or ANY; MATCH and pattern types also "
    "match covering patterns",
    source="KIP-290",
)
def filters(target: Target) -> None:
    require_authorizer(target)
    name = target.fresh_name()
    rules = [
        rule(name, AclOperation.READ),
        rule(name[:-2], AclOperation.WRITE, pattern=PREFIXED),
        rule(name, AclOperation.DESCRIBE, permission=DENY),
        rule(name, AclOperation.WRITE, resource=TRANSACTION),
    ]
    create(target, *rules)
    with target.peer() as peer:
        for field, kinds in {
            "resource_type_filter": AclResourceType,
            "pattern_type_filter": (ANY, LITERAL, PREFIXED),
            "operation": AclOperation,
            "permission_type": AclPermissionType,
        }.items():
            for kind in kinds:
                if kind == UNKNOWN:
                    continue
                for asked_name in (name, name[:-2]):
                    named = [each for each in rules if each.resource_name == asked_name]
                    expected = sorted(
                        _key(each) for each in named if kind in (ANY, _number(each, field))
                    )
                    expect_equal(
                        _found(peer, asked_name, {field: int(kind)}),
                        expected,
                        f"DescribeAcls of {asked_name} with {field} {kind}",
                    )
        expect_equal(
            _found(peer, name, MATCHING), sorted(map(_key, rules)), "DescribeAcls with MATCH"
        )
        expect_equal(
            _found(peer, name + "x", MATCHING), [_key(rules[1])], "DescribeAcls of a longer name"
        )
    for each in rules:
        delete(target, each.resource_name)
    settled(partial(described_acls, target, rules[0]), lambda rows: not rows, "no rule")


def _number(of: AclCreation, field: str) -> int:
    names = {
        "resource_type_filter": "resource_type",
        "pattern_type_filter": "resource_pattern_type",
    }
    return int(getattr(of, names.get(field, field)))


def _key(of: AclCreation) -> tuple[int, str, int, int, int]:
    return (
        of.resource_type,
        of.resource_name,
        of.resource_pattern_type,
        of.operation,
        of.permission_type,
    )


def _found(
    peer: Peer, name: str, numbers: Mapping[str, int]
) -> list[tuple[int, str, int, int, int]]:
    answer = peer.ask(
        filtering(DescribeAclsRequest, numbers, name), ACL_VERSION, DescribeAclsResponse
    )
    return sorted(
        (row.resource_type, row.resource_name, row.pattern_type, acl.operation, acl.permission_type)
        for row in answer.resources
        for acl in row.acls
    )


def _two_phase_commit(target: Target) -> list[tuple[int, str | None]]:
    made = rule(target.fresh_name(), AclOperation.TWO_PHASE_COMMIT, resource=TRANSACTION)
    found = create(target, made)
    delete(target, made.resource_name)
    return found


@REQUIREMENTS.that(
    4, "an ACL for TWO_PHASE_COMMIT (15) can be created", source="KIP-939", since="4.1"
)
def two_phase_commit(target: Target) -> None:
    expect_equal(_two_phase_commit(target), [(0, "")], "CreateAcls")


@REQUIREMENTS.that(
    5, "operation 15 is unknown: INVALID_REQUEST", source="AclOperation", until="4.0"
)
def no_two_phase_commit(target: Target) -> None:
    expect_equal(_two_phase_commit(target), [(INVALID, "Invalid operation UNKNOWN")], "CreateAcls")

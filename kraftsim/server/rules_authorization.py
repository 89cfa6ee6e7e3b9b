"""ACLs: their evaluation, the search by filters, and their creation and deletion.

Source: KIP-11, KIP-140, KIP-290, KIP-679, KIP-801,
org.apache.kafka.metadata.authorizer.StandardAuthorizerData,
org.apache.kafka.controller.AclControlManager, kafka.server.AclApis.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.rules_registries import Registries
from kraftsim.server.rules_authentication import USER_TYPE, Principal
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k29_describe_acls import DescribeAclsRequest
from protocol.messages.k30_create_acls import AclCreation, CreateAclsRequest
from protocol.messages.k31_delete_acls import DeleteAclsRequest
from protocol.metadata.security import AccessControlEntryRecord, RemoveAccessControlEntryRecord

# --------------------------------------------------------------------------------------------------
# Evaluation
#
# A matching DENY overrides every ALLOW; without a matching ACL access is denied, unless
# allow.everyone.if.no.acl.found. ALLOW of one operation may imply another (READ implies DESCRIBE),
# DENY never does. Super users are allowed everything.
# Source: StandardAuthorizerData, Authorizer.authorizeByResourceType.

Rule = AccessControlEntryRecord
WILDCARD: Final = "*"
ANY_PRINCIPAL: Final = f"{USER_TYPE}:*"
CLUSTER_NAME: Final = "kafka-cluster"
IMPLY: Final = {
    int(AclOperation.DESCRIBE): frozenset(
        (
            int(AclOperation.DESCRIBE),
            int(AclOperation.READ),
            int(AclOperation.WRITE),
            int(AclOperation.DELETE),
            int(AclOperation.ALTER),
        )
    ),
    int(AclOperation.DESCRIBE_CONFIGS): frozenset(
        (int(AclOperation.DESCRIBE_CONFIGS), int(AclOperation.ALTER_CONFIGS))
    ),
}
"""Operation -> the operations whose ALLOW implies it, itself included."""
VERDICTS_MAX: Final = 65_536
"""The maximum number of cached results per authorizer.

Clients choose the names, so an unbounded cache could exhaust the memory.
"""
CACHED_NAME_MAX: Final = 249
"""The maximum length of a cached name: that of a topic.

Group and transactional ids may have 32,767 bytes.
"""


class Verdicts(dict[str, bool]):
    """Resource name -> whether a principal is allowed an operation; evaluated on first use.

    Valid until the ACLs change.
    """

    def __init__(self, evaluate: Callable[[str], bool], has_room: Callable[[], bool]) -> None:
        super().__init__()
        self._evaluate = evaluate
        self._has_room = has_room

    def __missing__(self, name: str) -> bool:
        verdict = self._evaluate(name)
        if len(name) <= CACHED_NAME_MAX and self._has_room():
            self[name] = verdict
        return verdict


class Authorizer:
    """Evaluates the current ACLs of `registries`."""

    def __init__(
        self, super_users: str, *, allows_without_rules: bool, registries: Callable[[], Registries]
    ) -> None:
        self._super_users = frozenset(
            name.strip() for name in super_users.split(";") if name.strip()
        )
        self._allows_without_rules = allows_without_rules
        self._registries = registries
        self._seen: tuple[Registries, int] | None = None
        self._literal: dict[tuple[int, str], list[Rule]] = {}
        self._prefixed: dict[tuple[int, str], list[Rule]] = {}
        self._prefix_sizes: dict[int, list[int]] = {}
        self._verdicts: dict[tuple[str, str, int, int], Verdicts] = {}
        self._verdict_count = 0

    def is_super_user(self, principal: Principal) -> bool:
        """Return whether a principal is a super user."""
        return str(principal) in self._super_users

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: AclOperation,
        resource: AclResourceType,
        name: str,
    ) -> bool:
        """Return whether a principal is allowed an operation on a resource."""
        principal_name = str(principal)
        return (
            principal_name in self._super_users
            or self._verdicts_of(principal_name, host, int(operation), int(resource))[name]
        )

    def verdicts(
        self, principal: Principal, host: str, operation: AclOperation, resource: AclResourceType
    ) -> Mapping[str, bool]:
        """Return name -> result for a principal that is no super user.

        Valid for the current request only.
        """
        return self._verdicts_of(str(principal), host, int(operation), int(resource))

    def _verdicts_of(
        self, principal_name: str, host: str, operation: int, resource: int
    ) -> Verdicts:
        self._refresh()
        key = principal_name, host, operation, resource
        found = self._verdicts.get(key)
        if found is None:
            found = Verdicts(
                lambda name: self._evaluate(principal_name, host, operation, resource, name),
                self._has_room,
            )
            if self._has_room():
                self._verdicts[key] = found
        return found

    def _has_room(self) -> bool:
        """Count one more cached result; a full cache is cleared."""
        if self._verdict_count >= VERDICTS_MAX:
            self._forget_verdicts()
            return False
        self._verdict_count += 1
        return True

    def _forget_verdicts(self) -> None:
        for verdicts in self._verdicts.values():
            verdicts.clear()
        self._verdicts.clear()
        self._verdict_count = 0

    def _evaluate(
        self, principal_name: str, host: str, operation: int, resource: int, name: str
    ) -> bool:
        is_ruled = is_allowed = False
        for rules in self._rules_about(resource, name):
            is_ruled = True
            for rule in rules:
                if not _fits(rule, principal_name, host, operation):
                    continue
                if rule.permission_type == AclPermissionType.DENY:
                    return False
                is_allowed = True
        return is_allowed or (not is_ruled and self._allows_without_rules)

    def allows_any(
        self, principal: Principal, host: str, operation: AclOperation, resource: AclResourceType
    ) -> bool:
        """Return whether a principal is allowed an operation on any resource of a type."""
        if self.allows(principal, host, operation, resource, "hardcode"):
            return True
        principals = (str(principal), ANY_PRINCIPAL)
        allowed: list[Rule] = []
        denied: set[tuple[int, str]] = set()
        for rule in self.rules():
            fits = (
                rule.resource_type == resource
                and rule.principal in principals
                and rule.host in (host, WILDCARD)
            )
            if not fits or rule.operation not in (operation, AclOperation.ALL):
                continue
            if rule.permission_type == AclPermissionType.ALLOW:
                allowed.append(rule)
            elif rule.pattern_type == AclPatternType.LITERAL and rule.resource_name == WILDCARD:
                return False
            else:
                denied.add((rule.pattern_type, rule.resource_name))
        return any(_is_left(rule, denied) for rule in allowed)

    def rules(self) -> list[Rule]:
        """Return all ACLs, in an order independent of their insertion."""
        return self._registries().access_rules.records()

    def _refresh(self) -> None:
        registries = self._registries()
        if (
            self._seen is not None
            and self._seen[0] is registries
            and self._seen[1] == registries.rule_changes
        ):
            return
        self._seen = (registries, registries.rule_changes)
        self._forget_verdicts()
        self._literal, self._prefixed, sizes = {}, {}, set[tuple[int, int]]()
        for rule in registries.access_rules.records():
            if rule.pattern_type == AclPatternType.PREFIXED:
                self._prefixed.setdefault((rule.resource_type, rule.resource_name), []).append(rule)
                sizes.add((rule.resource_type, len(rule.resource_name)))
            else:
                self._literal.setdefault((rule.resource_type, rule.resource_name), []).append(rule)
        self._prefix_sizes = {}
        for resource, size in sorted(sizes):
            self._prefix_sizes.setdefault(resource, []).append(size)

    def _rules_about(self, resource: int, name: str) -> list[list[Rule]]:
        found = [
            self._literal.get((resource, name)),
            self._literal.get((resource, WILDCARD)) if name != WILDCARD else None,
        ]
        found += [
            self._prefixed.get((resource, name[:size]))
            for size in self._prefix_sizes.get(resource, ())
            if size <= len(name)
        ]
        return [rules for rules in found if rules]


def _fits(rule: Rule, principal_name: str, host: str, operation: int) -> bool:
    if rule.principal not in (principal_name, ANY_PRINCIPAL) or rule.host not in (host, WILDCARD):
        return False
    if rule.operation in (operation, AclOperation.ALL):
        return True
    return rule.permission_type == AclPermissionType.ALLOW and rule.operation in IMPLY.get(
        operation, ()
    )


def _is_left(rule: Rule, denied: set[tuple[int, str]]) -> bool:
    """Return whether an ALLOW is not fully covered by DENYs."""
    name = rule.resource_name
    if rule.pattern_type == AclPatternType.LITERAL:
        if name == WILDCARD:
            return True
        if (int(AclPatternType.LITERAL), name) in denied:
            return False
    return not any(
        (int(AclPatternType.PREFIXED), name[:size]) in denied for size in range(1, len(name) + 1)
    )


# --------------------------------------------------------------------------------------------------
# The search by many filters, without comparing each filter with each ACL
#
# ACLs are indexed by the exact values of a filter; enumerations are compared once per combination.
# The cost of a filter is proportional to its matches.
# Source: KIP-290, ResourcePatternFilter.matches.

Kind: TypeAlias = tuple[int, int, int, int]
"""Resource type, pattern type, operation, permission type."""
Exact: TypeAlias = tuple[str | None, str | None, str | None]
"""Name, principal, host; None if not in the filter."""
Bucket: TypeAlias = dict[Kind, list[int]]
"""Combination -> indexes of ACLs, ascending."""


class Filter(Protocol):
    """The filter of DescribeAcls and DeleteAcls: null and ANY match everything."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class RuleSearch:
    """`rules` in the order of results. They must not change meanwhile."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._tables: dict[tuple[bool, bool, bool], dict[Exact, Bucket]] = {}
        """Which of name, principal and host are indexed -> their values -> ACLs.

        Built on first use.
        """
        prefixed = (rule for rule in rules if rule.pattern_type == AclPatternType.PREFIXED)
        self._prefix_sizes = sorted({len(rule.resource_name) for rule in prefixed})

    def found(self, asked: Filter) -> list[Rule]:
        """Return the ACLs that match a filter."""
        names = [asked.resource_name_filter]
        is_match = asked.pattern_type_filter == AclPatternType.MATCH
        if is_match and asked.resource_name_filter is not None:
            names = list(self._matching_names(asked.resource_name_filter))
        places = sorted(place for name in names for place in self._places(asked, name, is_match))
        return [self._rules[place] for place in places]

    def _matching_names(self, name: str) -> Iterator[str]:
        """Yield the names of ACLs that may apply to a resource: its name, its prefixes, and *."""
        sizes = (size for size in self._prefix_sizes if size < len(name))
        yield from dict.fromkeys((name, WILDCARD, *(name[:size] for size in sizes)))

    def _places(self, asked: Filter, name: str | None, is_match: bool) -> Iterator[int]:
        exact = (name, asked.principal_filter, asked.host_filter)
        for kind, places in self._bucket(exact).items():
            if not _is_kind(asked, kind):
                continue
            if is_match and name is not None and not _is_about(asked, name, kind):
                continue
            yield from places

    def _bucket(self, exact: Exact) -> Bucket:
        name, principal, host = exact
        said = (name is not None, principal is not None, host is not None)
        table = self._tables.get(said)
        if table is None:
            table = self._tables[said] = _table(self._rules, said)
        return table.get(exact, NOTHING)


NOTHING: Final[Bucket] = {}


def _table(rules: Iterable[Rule], said: tuple[bool, bool, bool]) -> dict[Exact, Bucket]:
    by_name, by_principal, by_host = said
    table: dict[Exact, Bucket] = {}
    for place, rule in enumerate(rules):
        exact = (
            rule.resource_name if by_name else None,
            rule.principal if by_principal else None,
            rule.host if by_host else None,
        )
        kind = (rule.resource_type, rule.pattern_type, rule.operation, rule.permission_type)
        table.setdefault(exact, {}).setdefault(kind, []).append(place)
    return table


def _is_kind(asked: Filter, kind: Kind) -> bool:
    resource_type, pattern_type, operation, permission_type = kind
    return (
        asked.resource_type_filter in (AclResourceType.ANY, resource_type)
        and asked.pattern_type_filter in (AclPatternType.ANY, AclPatternType.MATCH, pattern_type)
        and asked.operation in (AclOperation.ANY, operation)
        and asked.permission_type in (AclPermissionType.ANY, permission_type)
    )


def _is_about(asked: Filter, name: str, kind: Kind) -> bool:
    """Return whether ACLs of a name apply to the resource of a MATCH filter."""
    if kind[1] == AclPatternType.PREFIXED:
        return (asked.resource_name_filter or "").startswith(name)
    return name in (asked.resource_name_filter, WILDCARD)


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


# --------------------------------------------------------------------------------------------------
# Creation and deletion


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

"""Authorization: evaluates the ACLs of the metadata log.

A matching DENY overrides every ALLOW; without a matching ACL access is denied, unless
allow.everyone.if.no.acl.found. ALLOW of one operation may imply another (READ implies DESCRIBE),
DENY never does. Super users are allowed everything.
Source: KIP-11, KIP-290, KIP-679, KIP-801,
org.apache.kafka.metadata.authorizer.StandardAuthorizerData, Authorizer.authorizeByResourceType.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kraftsim.core.metadata.registries import Registries
from kraftsim.core.security.principal import USER_TYPE, Principal
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.metadata.m18_access_control_entry import AccessControlEntryRecord

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

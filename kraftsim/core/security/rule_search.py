"""Finds the ACLs that match many filters, without comparing each filter with each ACL.

ACLs are indexed by the exact values of a filter; enumerations are compared
once per combination. The cost of a filter is proportional to its matches.
Source: KIP-290, ResourcePatternFilter.matches, org.apache.kafka.controller.AclControlManager.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from kraftsim.core.security.authorizer import WILDCARD, Rule
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType

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

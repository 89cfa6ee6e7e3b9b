"""ACL searches with many filters at once give the results of matching each filter against each
rule.
"""

import time
from random import Random

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_registries import Registries
from kraftsim.releases.release import release
from kraftsim.releases.traits import TWO_PHASE_COMMIT_RIGHT
from kraftsim.server.rules_authorization import (
    FOUND_MAX,
    WILDCARD,
    KnownRights,
    Rule,
    RuleSearch,
    decide_create_rules,
    decide_delete_rules,
)
from protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from protocol.errors import ErrorCode
from protocol.messages.k30_create_acls import AclCreation
from protocol.messages.k31_delete_acls import DeleteAclsFilter
from protocol.metadata.security import AccessControlEntryRecord

NAMES = ("a", "ab", "abc", "b", WILDCARD)
PRINCIPALS = ("User:alice", "User:bob", "User:*")
HOSTS = ("*", "10.0.0.1")
RULES, FILTERS = 10_000, 1_000
SECONDS_MAX = 2.0
"""Matching them pairwise takes more than this on any machine."""


def lets_through(asked: DeleteAclsFilter, rule: Rule) -> bool:
    """The definition of ResourcePatternFilter.matches and AccessControlEntryFilter.matches."""
    name, pattern = asked.resource_name_filter, asked.pattern_type_filter
    if asked.resource_type_filter not in (AclResourceType.ANY, rule.resource_type):
        return False
    if pattern not in (AclPatternType.ANY, AclPatternType.MATCH, rule.pattern_type):
        return False
    if name is not None and pattern != AclPatternType.MATCH and name != rule.resource_name:
        return False
    if name is not None and pattern == AclPatternType.MATCH:
        if rule.pattern_type == AclPatternType.PREFIXED:
            if not name.startswith(rule.resource_name):
                return False
        elif rule.resource_name not in (name, WILDCARD):
            return False
    return (
        asked.principal_filter in (None, rule.principal)
        and asked.host_filter in (None, rule.host)
        and asked.operation in (AclOperation.ANY, rule.operation)
        and asked.permission_type in (AclPermissionType.ANY, rule.permission_type)
    )


def drawn_rule(rng: Random, number: int) -> Rule:
    return AccessControlEntryRecord(
        id=number.to_bytes(16),
        resource_type=rng.choice((2, 3)),
        resource_name=rng.choice(NAMES),
        pattern_type=rng.choice((3, 4)),
        principal=rng.choice(PRINCIPALS),
        host=rng.choice(HOSTS),
        operation=rng.choice((3, 4)),
        permission_type=rng.choice((2, 3)),
    )


def drawn_filter(rng: Random) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=rng.choice((1, 2, 3)),
        resource_name_filter=rng.choice((None, "abcd", *NAMES)),
        pattern_type_filter=rng.choice((1, 2, 3, 4)),
        principal_filter=rng.choice((None, *PRINCIPALS)),
        host_filter=rng.choice((None, *HOSTS)),
        operation=rng.choice((1, 3, 4)),
        permission_type=rng.choice((1, 2, 3)),
    )


@pytest.mark.parametrize("seed", range(1, 3))
def test_filter_finds_its_matches_in_the_order_of_the_rules(seed: int) -> None:
    rng = Random(seed)
    rules = [drawn_rule(rng, number) for number in range(300)]
    search = RuleSearch(rules)
    sizes = []
    for _ in range(3000):
        asked = drawn_filter(rng)
        found = search.found(asked)
        assert found == [rule for rule in rules if lets_through(asked, rule)], asked
        sizes.append(len(found))
    assert min(sizes) == 0 and max(sizes) > 30


def registries_of(rules: list[Rule]) -> Registries:
    registries = Registries(dict)
    for rule in rules:
        registries.replay(rule)
    return registries


def test_cost_of_many_filters_and_rules_is_linear_in_both() -> None:
    """Filters by name, principal or host that many rules match, but never both attributes of one
    rule.
    """
    rules = [
        AccessControlEntryRecord(
            id=number.to_bytes(16),
            resource_type=2,
            resource_name="t" if number % 3 == 0 else f"t{number}",
            pattern_type=3 if number % 2 else 4,
            principal="User:p" if number % 3 == 1 else f"User:{number}",
            host="h" if number % 3 == 2 else f"h{number}",
            operation=3,
            permission_type=3,
        )
        for number in range(RULES)
    ]
    registries = registries_of(rules)
    asked = [
        DeleteAclsFilter(
            resource_type_filter=2,
            resource_name_filter=(None, "t", f"t{number}")[number % 3],
            pattern_type_filter=(1, 2, 3)[number % 3],
            principal_filter=("User:p", f"User:{number}", None)[number % 3],
            host_filter=("h", None, "h")[number % 3],
            operation=1,
            permission_type=1,
        )
        for number in range(FILTERS)
    ]
    started = time.process_time()
    decision = decide_delete_rules(registries, asked, KnownRights.made())
    assert time.process_time() - started < SECONDS_MAX
    assert len(decision.result) == FILTERS
    assert 0 < len(decision.records) < RULES


def test_filters_after_a_full_response_are_rejected() -> None:
    registries = registries_of([drawn_rule(Random(2), number) for number in range(RULES)])
    everything = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    decision = decide_delete_rules(registries, [everything] * FILTERS, KnownRights.made())
    whole = [each for each in decision.result if not isinstance(each, Refusal)]
    refused = [each for each in decision.result if isinstance(each, Refusal)]
    assert sum(map(len, whole)) == FOUND_MAX and len(whole) + len(refused) == FILTERS
    assert {each.error for each in refused} == {ErrorCode.POLICY_VIOLATION}
    assert len(decision.records) == RULES, "rules that several filters match are deleted once"


def test_first_error_of_an_invalid_acl_is_the_one_that_kafka_reports() -> None:
    """AclControlManager.validateNewAcl checks the principal last."""
    creation = AclCreation(
        resource_type=99,
        resource_name="t",
        resource_pattern_type=AclPatternType.LITERAL,
        principal="alice",
        host="*",
        operation=AclOperation.READ,
        permission_type=AclPermissionType.ALLOW,
    )
    decision = decide_create_rules(
        Registries(dict), [creation], lambda: bytes(16), KnownRights.made()
    )
    assert decision.records == [] and decision.result == [
        Refusal(ErrorCode.INVALID_REQUEST, "Invalid resourceType UNKNOWN")
    ]


@pytest.mark.parametrize(("line", "is_known"), [("4.0", False), ("4.1", True), ("4.4", True)])
def test_a_right_to_two_phase_commit_exists_since_4_1(line: str, is_known: bool) -> None:
    """Operation 15 of an ACL (KIP-939); measured with Apache Kafka 4.0.2, 4.1.2 and 4.4.0."""
    rights = KnownRights.made(has_two_phase_commit=release(line).has(TWO_PHASE_COMMIT_RIGHT))
    creation = AclCreation(
        resource_type=AclResourceType.TRANSACTIONAL_ID,
        resource_name="id",
        resource_pattern_type=AclPatternType.LITERAL,
        principal="User:a",
        host="*",
        operation=15,
        permission_type=AclPermissionType.ALLOW,
    )
    decision = decide_create_rules(Registries(dict), [creation], lambda: bytes(16), rights)
    (result,) = decision.result
    assert (result is None) is is_known

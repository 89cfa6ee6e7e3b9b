"""The rules about coordinators, metadata, offsets, tiers and share groups find each defect in disks
that are sound but for it, say what they cannot decide, and find nothing in sound disks.
"""

import pytest

from tests.audit.coordinator_cases import CASES, built
from tests.audit.tables_of import messages

NUMBERS = range(len(CASES))
NAMES = [f"{rule.name}/{name}" for name, rule, *_ in CASES]


@pytest.mark.parametrize("number", NUMBERS, ids=NAMES)
def test_rule_finds_what_was_changed(number: int) -> None:
    """A change of one row is found by the rule about it; without it nothing is found."""
    case = built(number)
    result = case.disks.result(case.rule)
    assert result.examined > 0 or case.message is not None
    found, others = (
        messages(result, defects=case.is_defect),
        messages(result, defects=not case.is_defect),
    )
    assert others == []
    if case.message is None:
        assert found == [], found
    else:
        assert found
        assert all(case.message in each for each in found), found


def test_every_rule_has_a_sound_case_and_a_defect() -> None:
    """No rule is left out."""
    sound = {rule.name for _, rule, _, message, *_ in CASES if message is None}
    wrong = {rule.name for _, rule, _, message, is_defect, _ in CASES if message and is_defect}
    undecided = {rule.name for _, rule, *_, is_defect, _ in CASES if not is_defect}
    rules = {rule.name: rule for _, rule, *_ in CASES}
    assert len(rules) == 28
    assert sound == wrong == set(rules)
    assert undecided <= {name for name, rule in rules.items() if rule.undecided}

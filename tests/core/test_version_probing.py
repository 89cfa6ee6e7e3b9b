"""What a leader says to versions that it is told, and what a member makes of the answer.   Source: KIP-268, StreamsPartitionAssignor."""

import pytest

from kraftsim.core.clients.version_probing import VersionProbing, Versions


@pytest.mark.parametrize(
    ("leader", "members", "told"),
    [
        (2, [(2, 2), (2, 2)], (2, 2)),
        (2, [(2, 2), (1, 1)], (1, 1)),
        (2, [(1, 2), (1, 2)], (1, 2)),  # all may go on to 2
        (1, [(1, 1), (2, 2)], (1, 1)),  # who uses 2 is beyond this leader
        (3, [(3, 3), (2, 4)], (2, 3)),
    ],
)
def test_a_leader_says_the_lowest_in_use_and_the_latest_that_all_understand(leader, members, told):
    assert VersionProbing(leader).decide_assignment([Versions(*each) for each in members]) == told


@pytest.mark.parametrize(
    ("latest", "told", "again", "used", "assigned"),
    [
        (2, (2, 2), False, 2, 2),
        (2, (1, 1), True, 1, 0),  # somebody is older: down, and join again
        (1, (1, 1), False, 1, 1),
        (1, (1, 3), False, 1, 1),  # a leader that counted wrong raises nobody above what it understands
    ],
)
def test_a_member_changes_over_and_joins_again(latest, told, again, used, assigned):
    member = VersionProbing(latest)
    assert member.on_assigned(Versions(*told)) is again
    assert (member.own.used, member.assigned) == (used, assigned)


def test_who_went_down_goes_up_when_all_understand_more():
    member = VersionProbing(2)
    assert member.on_assigned(Versions(1, 1)) and not member.on_assigned(Versions(1, 1))
    assert member.assigned == 1
    assert member.on_assigned(Versions(1, 2)) and not member.on_assigned(Versions(2, 2))
    assert (member.own, member.assigned) == ((2, 2), 2)

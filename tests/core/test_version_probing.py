"""How a leader answers the versions of its members, and how a member reacts.

Source: KIP-268, StreamsPartitionAssignor.
"""

import pytest

from kraftsim.clients.rules_group_member import VersionProbing
from kraftsim.clients.rules_member_steps import Versions


@pytest.mark.parametrize(
    ("leader", "members", "answer"),
    [
        (2, [(2, 2), (2, 2)], (2, 2)),
        (2, [(2, 2), (1, 1)], (1, 1)),
        (2, [(1, 2), (1, 2)], (1, 2)),  # all may upgrade to 2
        (1, [(1, 1), (2, 2)], (1, 1)),  # a member that uses 2 is ahead of this leader
        (3, [(3, 3), (2, 4)], (2, 3)),
    ],
)
def test_leader_sends_the_lowest_used_and_the_latest_supported_version(
    leader: int, members: list[tuple[int, int]], answer: tuple[int, int]
) -> None:
    assert VersionProbing(leader).decide_assignment([Versions(*each) for each in members]) == answer


@pytest.mark.parametrize(
    ("latest", "answer", "again", "used", "assigned"),
    [
        (2, (2, 2), False, 2, 2),
        (2, (1, 1), True, 1, 0),  # an older member exists: downgrade, and rejoin
        (1, (1, 1), False, 1, 1),
        (
            1,
            (1, 3),
            False,
            1,
            1,
        ),  # a leader's wrong count upgrades no member beyond what it supports
    ],
)
def test_member_changes_the_version_and_rejoins(
    latest: int, answer: tuple[int, int], again: bool, used: int, assigned: int
) -> None:
    member = VersionProbing(latest)
    assert member.on_assigned(Versions(*answer)) is again
    assert (member.own.used, member.assigned) == (used, assigned)


def test_downgraded_member_upgrades_when_all_members_support_it() -> None:
    member = VersionProbing(2)
    assert member.on_assigned(Versions(1, 1)) and not member.on_assigned(Versions(1, 1))
    assert member.assigned == 1
    assert member.on_assigned(Versions(1, 2)) and not member.on_assigned(Versions(2, 2))
    assert (member.own, member.assigned) == ((2, 2), 2)

"""Members of an application agree on a version through their coordinator, over real connections,
while they are restarted under load (KIP-268, 447-34).
"""

from collections.abc import Callable

import pytest

from tools.bench.fencing.probing import (
    BEFORE,
    BY_SETTING,
    NEW,
    OLD,
    PINNED,
    TASKS,
    THREADS,
    all_to,
    bounced,
)


def test_two_rolling_bounces_never_mix_task_and_thread_producers(
    figures: Callable[..., None],
) -> None:
    """447-34, 447-36, 447-37: with UPGRADE_FROM only the binary changes; without it the last
    restart switches all members.
    """
    found = bounced(OLD, *all_to(PINNED), *all_to(NEW))
    assert found.rebalances == (1, 1, 1, 2, 2, 2), (
        "the old leader occurs once, and so does each later version"
    )
    assert (found.mixed, found.kinds) == (0, (THREADS,))
    assert (found.doubled, found.missing) == (0, 0)
    figures(
        rebalances_first_bounce=list(found.rebalances[:3]),
        rebalances_second_bounce=list(found.rebalances[3:]),
        generations_of_both_kinds=found.mixed,
        probed_records=found.records,
        probed_doubled=found.doubled,
    )


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_a_thread_producer_never_meets_a_task_producer_under_any_leader(
    order: tuple[int, int, int],
) -> None:
    """An old leader assigns no partitions to a later member; a new leader uses the lowest
    version.
    """
    found = bounced(OLD, *all_to(NEW, order))
    assert (found.mixed, found.kinds, found.doubled, found.missing) == (0, (THREADS,), 0, 0)


def test_group_downgrades_when_a_member_does(figures: Callable[..., None]) -> None:
    """Rolled back half way, and after all were upgraded: the version goes down with the first
    member that does not support it.
    """
    half = bounced(OLD, *all_to(PINNED), (2, NEW), (2, PINNED))
    assert (half.mixed, half.kinds, half.doubled, half.missing) == (0, (TASKS,), 0, 0)
    whole = bounced(NEW, (1, PINNED))
    assert (whole.mixed, whole.kinds, whole.doubled, whole.missing) == (0, (TASKS,), 0, 0)
    figures(kinds_after_going_back=list(whole.kinds))


def test_setting_switches_one_member_after_the_other(figures: Callable[..., None]) -> None:
    """As shipped: a member restarted with processing.guarantee=exactly_once_v2 switches at once,
    beside older members.
    """
    found = bounced(BEFORE, *all_to(BY_SETTING))
    assert found.mixed > 0
    figures(generations_of_both_kinds_by_setting=found.mixed)

"""Reconciliation of a member with its target assignment: revoke, assign, wait.

A partition is assigned only after its former owner has reported the revocation. Until then the
former owner stays in its epoch, and the new owner continues without the partition.
Source: KIP-848, org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder.
"""

from collections.abc import Callable
from dataclasses import replace

from kraftsim.core.groups.consumer.consumer_member import ConsumerMember, MemberState
from kraftsim.core.groups.consumer.server_assignors import NO_SHARES, Shares

IsTaken = Callable[[bytes, int], bool]


def reconciled(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Shares,
    owned: Shares | None,
    is_taken: IsTaken,
) -> ConsumerMember:
    """Return the member after its next step, or unchanged if there is none.

    `owned` are the partitions that the member reports, None if it does not; `is_taken` returns
    whether a partition is still assigned to another member or pending revocation there.
    """
    match member.state:
        case MemberState.STABLE if member.member_epoch == target_epoch:
            return member
        case MemberState.UNREVOKED_PARTITIONS:
            if _still_owns(owned, member.pending_revocation):
                return member
            return _next(member, member.member_epoch + 1, target_epoch, target, owned, is_taken)
        case _:
            return _next(member, member.member_epoch, target_epoch, target, owned, is_taken)


def _next(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Shares,
    owned: Shares | None,
    is_taken: IsTaken,
) -> ConsumerMember:
    kept: dict[bytes, tuple[int, ...]] = {}
    revoked: dict[bytes, tuple[int, ...]] = {}
    taken: dict[bytes, tuple[int, ...]] = {}
    is_waiting = has_more = False
    for topic_id in sorted({**target, **member.assigned}):
        wanted, had = target.get(topic_id, ()), member.assigned.get(topic_id, ())
        is_wanted, is_there = frozenset(wanted), frozenset(had)
        retained = tuple(number for number in had if number in is_wanted)
        removed = tuple(number for number in had if number not in is_wanted)
        lacks = [number for number in wanted if number not in is_there]
        free = [number for number in lacks if not is_taken(topic_id, number)]
        is_waiting = is_waiting or len(free) < len(lacks)
        has_more = has_more or bool(free)
        _put(kept, topic_id, retained)
        _put(revoked, topic_id, removed)
        _put(taken, topic_id, tuple(sorted((*retained, *free))))
    if revoked and _still_owns(owned, revoked):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked, target_epoch)
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _moved(member, target_epoch, state, taken if has_more else kept, NO_SHARES, target_epoch)


def _put(shares: dict[bytes, tuple[int, ...]], topic_id: bytes, numbers: tuple[int, ...]) -> None:
    if numbers:
        shares[topic_id] = numbers


def _moved(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Shares,
    revoked: Shares,
    target_epoch: int,
) -> ConsumerMember:
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        state=state,
        assigned=dict(assigned),
        pending_revocation=dict(revoked),
        assignment_epochs=_assignment_epochs(member, target_epoch, assigned, revoked),
    )


def _assignment_epochs(
    member: ConsumerMember, target_epoch: int, *held: Shares
) -> dict[tuple[bytes, int], int]:
    """Return the epoch of each partition: that in which it was assigned to the member, and the
    target's for a new one.
    """
    had = {topic_id: frozenset(numbers) for topic_id, numbers in member.assigned.items()}
    return {
        (topic_id, number): member.assignment_epoch(topic_id, number)
        if number in had.get(topic_id, ())
        else target_epoch
        for shares in held
        for topic_id, numbers in shares.items()
        for number in numbers
    }


def _still_owns(owned: Shares | None, shares: Shares) -> bool:
    """Return whether a member owns some of these partitions; one that does not report its
    partitions owns all of them.
    """
    return owned is None or any(
        not frozenset(numbers).isdisjoint(shares.get(topic_id, ()))
        for topic_id, numbers in owned.items()
    )

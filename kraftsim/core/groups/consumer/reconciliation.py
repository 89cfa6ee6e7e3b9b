"""The next step of a member on its way to its target: give up, take, wait.

Nobody is given a partition that somebody else may still read: a member first reports that it has let go. Until then it stays in its epoch, and who is
to have the partition goes on without it.   Source: KIP-848, org.apache.kafka.coordinator.group.modern.consumer.CurrentAssignmentBuilder.
"""

from collections.abc import Callable
from dataclasses import replace

from kraftsim.core.groups.consumer.consumer_member import ConsumerMember, MemberState
from kraftsim.core.groups.consumer.server_assignors import NO_SHARES, Shares

IsTaken = Callable[[bytes, int], bool]


def reconciled(member: ConsumerMember, *, target_epoch: int, target: Shares, owned: Shares | None, is_taken: IsTaken) -> ConsumerMember:
    """Return the member after its next step, or as it is where there is none.

    `owned` is what it says that it has, None if it does not say; `is_taken` tells whether a partition cannot be given to it yet, for somebody has it
    or is still giving it up.
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


def _next(member: ConsumerMember, epoch: int, target_epoch: int, target: Shares, owned: Shares | None, is_taken: IsTaken) -> ConsumerMember:
    kept: dict[bytes, tuple[int, ...]] = {}
    revoked: dict[bytes, tuple[int, ...]] = {}
    taken: dict[bytes, tuple[int, ...]] = {}
    is_waiting = has_more = False
    for topic_id in sorted({**target, **member.assigned}):
        wanted, had = target.get(topic_id, ()), member.assigned.get(topic_id, ())
        is_wanted, is_there = frozenset(wanted), frozenset(had)
        stays = tuple(number for number in had if number in is_wanted)
        goes = tuple(number for number in had if number not in is_wanted)
        lacks = [number for number in wanted if number not in is_there]
        free = [number for number in lacks if not is_taken(topic_id, number)]
        is_waiting = is_waiting or len(free) < len(lacks)
        has_more = has_more or bool(free)
        _put(kept, topic_id, stays)
        _put(revoked, topic_id, goes)
        _put(taken, topic_id, tuple(sorted((*stays, *free))))
    if revoked and _still_owns(owned, revoked):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoked, target_epoch)
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _moved(member, target_epoch, state, taken if has_more else kept, NO_SHARES, target_epoch)


def _put(shares: dict[bytes, tuple[int, ...]], topic_id: bytes, numbers: tuple[int, ...]) -> None:
    if numbers:
        shares[topic_id] = numbers


def _moved(member: ConsumerMember, epoch: int, state: MemberState, assigned: Shares, revoked: Shares, target_epoch: int) -> ConsumerMember:
    return replace(
        member,
        member_epoch=epoch,
        previous_member_epoch=member.member_epoch,
        state=state,
        assigned=dict(assigned),
        pending_revocation=dict(revoked),
        assignment_epochs=_assignment_epochs(member, target_epoch, assigned, revoked),
    )


def _assignment_epochs(member: ConsumerMember, target_epoch: int, *held: Shares) -> dict[tuple[bytes, int], int]:
    """Return the epoch of each partition: that in which the member got it, and the target's where it did not have it."""
    had = {topic_id: frozenset(numbers) for topic_id, numbers in member.assigned.items()}
    return {
        (topic_id, number): member.assignment_epoch(topic_id, number) if number in had.get(topic_id, ()) else target_epoch
        for shares in held
        for topic_id, numbers in shares.items()
        for number in numbers
    }


def _still_owns(owned: Shares | None, shares: Shares) -> bool:
    """Tell whether a member has something of some partitions; one that does not say has everything."""
    return owned is None or any(not frozenset(numbers).isdisjoint(shares.get(topic_id, ())) for topic_id, numbers in owned.items())

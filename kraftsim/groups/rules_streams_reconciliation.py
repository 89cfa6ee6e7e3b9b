"""The next step of a streams group member towards its target: revoke, assign, wait.

An active task is assigned only after its former owner has reported the revocation, and a process
has a task once, in whatever role. Since 4.4 a member may keep a task in another role: an active
task becomes a standby, a standby a warm-up or the reverse at once, and a standby that becomes
active is kept until then.
Source: org.apache.kafka.coordinator.group.streams.CurrentAssignmentBuilder of 4.2, 4.3 and 4.4.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from kraftsim.core.decision import Refusal
from kraftsim.groups.rules_streams_assignor import Task, Tasks
from kraftsim.groups.rules_streams_group import (
    EpochTasks,
    HeldTasks,
    StreamsMember,
    StreamsMemberState,
    TaskSet,
)
from protocol.errors import ErrorCode

NUMBERS = dict[str, set[int]]


class TaskOwners(Protocol):
    """Which processes have a task, those included that have to revoke it."""

    def active_process(self, task: Task) -> str | None:
        """Return the process that runs a task."""
        ...

    def has_standby(self, task: Task, process_id: str) -> bool:
        """Return whether a process has a standby of a task."""
        ...

    def has_warmup(self, task: Task, process_id: str) -> bool:
        """Return whether a process warms a task up."""
        ...


def reconciled_tasks(
    member: StreamsMember,
    *,
    target_epoch: int,
    target: TaskSet,
    owned: TaskSet | None,
    owners: TaskOwners,
    changes_roles: bool,
) -> StreamsMember | Refusal:
    """Return the member after its next step, unchanged if there is none.

    `owned` are the tasks that it reports, None if it does not; with `changes_roles` it may keep a
    task in another role (since 4.4). FENCED_MEMBER_EPOCH if its state in the log is unknown.
    """
    step = _Step(member, target_epoch, target, owned, owners, changes_roles=changes_roles)
    match member.state:
        case StreamsMemberState.STABLE if member.member_epoch == target_epoch:
            return member
        case StreamsMemberState.UNREVOKED_TASKS:
            if step.has_not_released(member.revoked):
                return member
            return step.next(member.member_epoch + 1)
        case StreamsMemberState.UNKNOWN:
            if owned is None or not owned.is_empty:
                return Refusal(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The streams group member is in a unknown state. The member must abandon all "
                    "its tasks and rejoin.",
                )
            return step.next(target_epoch)
        case _:
            return step.next(member.member_epoch)


@dataclass(slots=True)
class _Role:
    """The tasks of one role: kept, to revoke, and to get."""

    kept: NUMBERS = field(default_factory=dict)
    revoked: NUMBERS = field(default_factory=dict)
    taken: NUMBERS = field(default_factory=dict)
    is_waiting: bool = False


class _Step:
    """One step of one member."""

    def __init__(
        self,
        member: StreamsMember,
        target_epoch: int,
        target: TaskSet,
        owned: TaskSet | None,
        owners: TaskOwners,
        *,
        changes_roles: bool,
    ) -> None:
        self._member = member
        self._target_epoch = target_epoch
        self._target = target
        self._owned = owned
        self._owners = owners
        self._changes_roles = changes_roles
        self._wanted_active = _sets(target.active)
        self._own_standby = _sets(member.assigned.standby)
        self._own_warmup = _sets(member.assigned.warmup)

    def has_not_released(self, tasks: HeldTasks) -> bool:
        """Return whether a member owns some of these tasks; one that does not report owns all."""
        owned = self._owned
        return owned is None or any(
            not mine.get(name, frozenset()).isdisjoint(numbers)
            for mine, theirs in (
                (_sets(owned.active), tasks.active),
                (_sets(owned.standby), tasks.standby),
                (_sets(owned.warmup), tasks.warmup),
            )
            for name, numbers in theirs.items()
        )

    def next(self, epoch: int) -> StreamsMember:
        """Return the member after a step from an epoch."""
        had = self._member.assigned
        active = _difference(had.active, self._target.active, self._is_active_taken)
        standby = _difference(had.standby, self._target.standby, self._is_standby_taken)
        warmup = _difference(had.warmup, self._target.warmup, self._is_warmup_taken)
        if self._changes_roles:
            self._demote(standby)
            _convert(had.standby, standby, warmup)
            _convert(had.warmup, warmup, standby)
            self._promote(active, standby, warmup)
        revoked = self._held(active.revoked, standby.revoked, warmup.revoked)
        if not revoked.is_empty and self.has_not_released(revoked):
            kept = self._held(active.kept, standby.kept, warmup.kept)
            return self._moved(StreamsMemberState.UNREVOKED_TASKS, epoch, kept, revoked)
        assigned = self._held(
            *(_merged(each.kept, each.taken) for each in (active, standby, warmup))
        )
        is_waiting = active.is_waiting or standby.is_waiting or warmup.is_waiting
        state = StreamsMemberState.UNRELEASED_TASKS if is_waiting else StreamsMemberState.STABLE
        return self._moved(state, self._target_epoch, assigned, HeldTasks())

    def _moved(
        self, state: StreamsMemberState, epoch: int, assigned: HeldTasks, revoked: HeldTasks
    ) -> StreamsMember:
        return replace(
            self._member,
            state=state,
            member_epoch=epoch,
            previous_member_epoch=self._member.member_epoch,
            assigned=assigned,
            revoked=revoked,
        )

    def _held(self, active: NUMBERS, standby: NUMBERS, warmup: NUMBERS) -> HeldTasks:
        """Return tasks; an active one keeps the epoch in which it was assigned."""
        known = self._member.assigned.active
        epochs: EpochTasks = {
            name: {
                number: known.get(name, {}).get(number, self._target_epoch)
                for number in sorted(active[name])
            }
            for name in sorted(active)
        }
        return HeldTasks(epochs, _sorted(standby), _sorted(warmup))

    # Whether a task has to be released first
    # ----------------------------------------------------------------------------------------------

    def _is_active_taken(self, task: Task) -> bool:
        if self._owners.active_process(task) is not None:
            return True
        return self._has_other_standby(task) or self._has_other_warmup(task)

    def _is_standby_taken(self, task: Task) -> bool:
        process_id = self._member.process_id
        runs_here = self._owners.active_process(task) == process_id
        if self._changes_roles:
            runs_here = runs_here and not _has(self._member.assigned.active, task)
        has_standby = self._owners.has_standby(task, process_id)
        return runs_here or has_standby or self._has_other_warmup(task)

    def _is_warmup_taken(self, task: Task) -> bool:
        process_id = self._member.process_id
        runs_here = self._owners.active_process(task) == process_id
        has_warmup = self._owners.has_warmup(task, process_id)
        return runs_here or has_warmup or self._has_other_standby(task)

    def _has_other_standby(self, task: Task) -> bool:
        """Return whether another member of the process has a standby; up to 4.3 any member."""
        is_own = self._changes_roles and _has(self._own_standby, task)
        return not is_own and self._owners.has_standby(task, self._member.process_id)

    def _has_other_warmup(self, task: Task) -> bool:
        is_own = self._changes_roles and _has(self._own_warmup, task)
        return not is_own and self._owners.has_warmup(task, self._member.process_id)

    # Changes of role
    # ----------------------------------------------------------------------------------------------

    def _demote(self, standby: _Role) -> None:
        """An active task that becomes a standby of the same member is one at once."""
        for task in _each(self._member.assigned.active):
            if _has(standby.taken, task):
                _drop(standby.taken, task)
                _add(standby.kept, task)

    def _promote(self, active: _Role, standby: _Role, warmup: _Role) -> None:
        """A standby or warm-up that becomes active is not revoked, and kept until then."""
        had = self._member.assigned
        for tasks, role in ((had.standby, standby), (had.warmup, warmup)):
            for task in _each(tasks):
                if _has(self._wanted_active, task):
                    _drop(role.revoked, task)
        revoked = self._held(active.revoked, standby.revoked, warmup.revoked)
        has_to_revoke = not revoked.is_empty and self.has_not_released(revoked)
        for tasks, role in ((had.standby, standby), (had.warmup, warmup)):
            for task in _each(tasks):
                is_promoted = not has_to_revoke and _has(active.taken, task)
                if _has(self._wanted_active, task) and not is_promoted:
                    _add(role.kept, task)


def _difference(
    had: Mapping[str, Iterable[int]], target: Tasks, is_taken: Callable[[Task], bool]
) -> _Role:
    role = _Role()
    for name in dict.fromkeys((*target, *had)):
        current, wanted = set(had.get(name, ())), set(target.get(name, ()))
        lacks = wanted - current
        free = {number for number in lacks if not is_taken((name, number))}
        role.is_waiting = role.is_waiting or len(free) < len(lacks)
        for numbers, rows in (
            (current & wanted, role.kept),
            (current - wanted, role.revoked),
            (free, role.taken),
        ):
            if numbers:
                rows[name] = numbers
    return role


def _convert(had: Tasks, outgoing: _Role, incoming: _Role) -> None:
    """A replica that changes its role at the same member does so at once."""
    for task in _each(had):
        if _has(incoming.taken, task):
            _drop(incoming.taken, task)
            _add(incoming.kept, task)
            _drop(outgoing.revoked, task)


def _each(tasks: Mapping[str, Iterable[int]]) -> list[Task]:
    return [(name, number) for name, numbers in tasks.items() for number in numbers]


def _has(tasks: Mapping[str, Collection[int]], task: Task) -> bool:
    return task[1] in tasks.get(task[0], ())


def _add(tasks: NUMBERS, task: Task) -> None:
    tasks.setdefault(task[0], set()).add(task[1])


def _drop(tasks: NUMBERS, task: Task) -> None:
    numbers = tasks.get(task[0])
    if numbers is not None and task[1] in numbers:
        numbers.remove(task[1])
        if not numbers:
            del tasks[task[0]]


def _merged(one: NUMBERS, other: NUMBERS) -> NUMBERS:
    return {name: one.get(name, set()) | other.get(name, set()) for name in {**one, **other}}


def _sorted(tasks: NUMBERS) -> Tasks:
    return {name: tuple(sorted(tasks[name])) for name in sorted(tasks)}


def _sets(tasks: Tasks) -> dict[str, frozenset[int]]:
    return {name: frozenset(numbers) for name, numbers in tasks.items()}

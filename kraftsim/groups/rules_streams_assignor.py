"""The server-side assignor of streams groups, `sticky`: a task goes to the member that ran it, else
to the least loaded one.

Active tasks are distributed evenly over members, after that the standby tasks of stateful
subtopologies over processes other than that of the active task. For the same input the result is
Apache Kafka's, ties included, which depend on the iteration order of Java's hash maps and on its
heap.
Source: KIP-1071, org.apache.kafka.coordinator.group.streams.assignor.{StickyTaskAssignor,
ProcessState}; compared with the classes of Apache Kafka 4.2.2, 4.3.1 and 4.4.0.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from kraftsim.groups.rules_assignors import java_order
from kraftsim.groups.rules_timing import java_hash

STICKY: Final = "sticky"
Task = tuple[str, int]
"""Subtopology id and partition."""
Tasks = Mapping[str, tuple[int, ...]]
"""Subtopology id -> partitions, ascending."""
NO_TASKS: Final[Tasks] = {}
NO_LOAD: Final = float("inf")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMember:
    """A member as input of the assignor: its process, its former tasks, and the changelog offsets
    that it has reported for tasks whose state it has.
    """

    member_id: str
    process_id: str
    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    offsets: Mapping[Task, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AssignedTasks:
    """The result for one member."""

    active: Tasks
    standby: Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyTraits:
    """How releases differ in details of the same algorithm."""

    skips_processes_with_task: bool = True
    """Whether a process that already has a task is passed over among its former standby members
    (not in 4.3, where a first member with the task ends the search).
    """
    computes_if_absent: bool = True
    """Whether the map of processes is filled by HashMap.computeIfAbsent (since 4.4) instead of put:
    it grows only at the next call, and a new entry is the first of its bucket.
    """


@dataclass(frozen=True, slots=True)
class SubtopologyTasks:
    """A subtopology as input of the assignor."""

    count: int
    is_stateful: bool


def assign_tasks(
    members: Sequence[TaskMember],
    subtopologies: Mapping[str, SubtopologyTasks],
    standby_replicas: int,
    traits: StickyTraits | None = None,
) -> dict[str, AssignedTasks]:
    """Return the tasks of each member, members in Kafka's iteration order.

    `members` are in the order in which Kafka puts them into a hash map.
    """
    rows = java_order(members, lambda member: java_hash(member.member_id))
    run = _Assignment(
        rows, dict(sorted(subtopologies.items())), standby_replicas, traits or StickyTraits()
    )
    if rows:
        run.assign_active()
        if standby_replicas > 0:
            run.assign_standby()
    return run.result()


class _Assignment:
    """One run of the algorithm."""

    def __init__(
        self,
        members: Sequence[TaskMember],
        subtopologies: Mapping[str, SubtopologyTasks],
        standby_replicas: int,
        traits: StickyTraits,
    ) -> None:
        self._members = members
        self._subtopologies = subtopologies
        self._standby_replicas = standby_replicas
        self._traits = traits
        active = sum(each.count for each in subtopologies.values())
        stateful = sum(each.count for each in subtopologies.values() if each.is_stateful)
        self._active_quota = _Quota(active, len(members))
        self._total_quota = _Quota(active + stateful * standby_replicas, len(members))
        self._processes: dict[str, _Process] = {}
        for member in members:
            process = self._processes.setdefault(member.process_id, _Process())
            process.add_member(member.member_id)
        self._former_active: dict[Task, TaskMember] = {
            task: member for member in members for task in _each(member.active)
        }
        self._former_standby = _former_standby(members)

    def assign_active(self) -> None:
        """Give each task to its former member, else to a former standby, else to the least loaded
        process.
        """
        tasks = sorted(self._tasks(), key=_by_partition)
        rest: list[Task] = []
        for task in tasks:
            member = self._former_active.get(task)
            if member is None or not self._keep_active(member, task):
                rest.append(task)
        tasks, rest = rest, []
        for task in tasks:
            member = self._least_loaded(self._former_standby.get(task, ()), None)
            if member is None or not self._keep_active(member, task):
                rest.append(task)
        heap = self._heap()
        for task in sorted(rest):
            process = heap.take()
            self._count(process.add_to_least_loaded(task, is_active=True), is_active=True)
            heap.add(process)

    def assign_standby(self) -> None:
        """Give each replica to the former active member, else to a former standby, else to the
        least loaded process without the task.
        """
        rest: list[tuple[Task, int]] = []
        stateful = (task for task in self._tasks() if self._subtopologies[task[0]].is_stateful)
        for task in sorted(stateful, key=_by_partition, reverse=True):
            for replica in range(self._standby_replicas):
                if not self._keep_standby(task):
                    rest.append((task, self._standby_replicas - replica))
                    break
        heap = self._heap()
        for task, count in sorted(rest, reverse=True):
            for _ in range(count):
                if not self._add_standby(heap, task):
                    break

    def result(self) -> dict[str, AssignedTasks]:
        """Return what is assigned."""
        return {
            member.member_id: AssignedTasks(
                _tasks_of(process.active[member.member_id]),
                _tasks_of(process.standby[member.member_id]),
            )
            for member in self._members
            for process in (self._processes[member.process_id],)
        }

    def _tasks(self) -> list[Task]:
        return [
            (name, number)
            for name, each in self._subtopologies.items()
            for number in range(each.count)
        ]

    def _keep_active(self, member: TaskMember, task: Task) -> bool:
        process = self._processes[member.process_id]
        if process.counts[member.member_id] >= self._active_quota.per_member:
            return False
        self._count(process.add(member.member_id, task, is_active=True), is_active=True)
        return True

    def _keep_standby(self, task: Task) -> bool:
        former = self._former_active.get(task)
        if former is None or not self._fits(former, task):
            former = self._least_loaded(self._former_standby.get(task, ()), task)
            if former is None or not self._is_below_quota(former):
                return False
        process = self._processes[former.process_id]
        self._count(process.add(former.member_id, task, is_active=False), is_active=False)
        return True

    def _fits(self, member: TaskMember, task: Task) -> bool:
        has_task = task in self._processes[member.process_id].tasks
        return not has_task and self._is_below_quota(member)

    def _is_below_quota(self, member: TaskMember) -> bool:
        count = self._processes[member.process_id].counts[member.member_id]
        return count < self._total_quota.per_member

    def _add_standby(self, heap: "JavaHeap[_Process]", task: Task) -> bool:
        """Add a standby task to the least loaded process that lacks it."""
        passed: list[_Process] = []
        found = False
        while not found and len(heap):
            process = heap.take()
            passed.append(process)
            if task not in process.tasks:
                self._count(process.add_to_least_loaded(task, is_active=False), is_active=False)
                found = True
        for process in reversed(passed):
            heap.add(process)
        return found

    def _least_loaded(self, members: Sequence[TaskMember], task: Task | None) -> TaskMember | None:
        """Return the first member whose process and own load are the lowest; with a task only on
        processes without it.
        """
        found: TaskMember | None = None
        process_load = member_load = NO_LOAD
        skips = self._traits.skips_processes_with_task
        for member in members:
            process = self._processes[member.process_id]
            has_task = task is not None and task in process.tasks
            if has_task and (skips or found is not None):
                continue
            load, count = process.load, process.counts[member.member_id]
            if found is None or (load < process_load and count < member_load):
                found, process_load, member_load = member, load, count
        if not skips and task is not None and found is not None:
            first = self._processes[members[0].process_id]
            return None if task in first.tasks else found
        return found

    def _count(self, new_count: int, *, is_active: bool) -> None:
        if is_active:
            self._active_quota.reached(new_count)
        self._total_quota.reached(new_count)

    def _heap(self) -> "JavaHeap[_Process]":
        heap: JavaHeap[_Process] = JavaHeap(lambda process: process.load)
        for process_id in self._process_order():
            heap.add(self._processes[process_id])
        return heap

    def _process_order(self) -> list[str]:
        """Return the processes in the order of a java.util.HashMap with room for the members."""
        computes = self._traits.computes_if_absent
        capacity, size = 1, 0
        while capacity < len(self._members):
            capacity *= 2
        known: set[str] = set()
        for member in self._members:
            if computes and size > capacity * 3 // 4:
                capacity *= 2
            if member.process_id not in known:
                known.add(member.process_id)
                size += 1
                if not computes and size > capacity * 3 // 4:
                    capacity *= 2
        return sorted(
            reversed(self._processes) if computes else self._processes,
            key=lambda process_id: _spread(java_hash(process_id)) & (capacity - 1),
        )


class _Quota:
    """How many tasks a member may keep: the mean of those members that have not reached it."""

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.per_member = self._mean()

    def reached(self, count: int) -> None:
        """A member has this many tasks."""
        if count == self.per_member:
            self._members -= 1
            self._tasks -= count
            self.per_member = self._mean()

    def _mean(self) -> int:
        # Java's division rounds towards zero, and its remainder has the sign of the dividend.
        if self._members == 0:
            return 0
        quotient = int(self._tasks / self._members)
        return quotient + (self._tasks - quotient * self._members > 0)


class _MemberLoad(NamedTuple):
    """A member of a process, with its number of tasks when it was added to the heap."""

    member_id: str
    tasks: int


class _Process:
    """A process, with the tasks of its members."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.active: dict[str, list[Task]] = {}
        self.standby: dict[str, list[Task]] = {}
        self.tasks: set[Task] = set()
        self.load = 0.0
        self._by_load: JavaHeap[_MemberLoad] | None = None
        self._task_count = 0

    def add_member(self, member_id: str) -> None:
        """Add a member without tasks."""
        self.counts[member_id] = 0
        self.active[member_id], self.standby[member_id] = [], []

    def add(self, member_id: str, task: Task, *, is_active: bool) -> int:
        """Add a task to a member; return its number of tasks."""
        self._by_load = None
        return self._add(member_id, task, is_active=is_active)

    def add_to_least_loaded(self, task: Task, *, is_active: bool) -> int:
        """Add a task to the least loaded member; return its number of tasks."""
        if len(self.counts) == 1:
            return self._add(next(iter(self.counts)), task, is_active=is_active)
        if self._by_load is None:
            self._by_load = JavaHeap(lambda entry: entry.tasks)
            for member_id in java_order(self.counts, java_hash):
                self._by_load.add(_MemberLoad(member_id, self.counts[member_id]))
        entry = self._by_load.take()
        count = self._add(entry.member_id, task, is_active=is_active)
        self._by_load.add(_MemberLoad(entry.member_id, count))
        return count

    def _add(self, member_id: str, task: Task, *, is_active: bool) -> int:
        self._task_count += 1
        self.tasks.add(task)
        (self.active if is_active else self.standby)[member_id].append(task)
        self.counts[member_id] += 1
        self.load = self._task_count / len(self.counts)
        return self.counts[member_id]


class JavaHeap(Generic[Item]):
    """A java.util.PriorityQueue: equal items are taken in the same order as there.

    Source: PriorityQueue.{siftUp, siftDown}.
    """

    def __init__(self, key: Callable[[Item], float]) -> None:
        self._key = key
        self._items: list[Item] = []

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item) -> None:
        """Add an item."""
        items = self._items
        items.append(item)
        place = len(items) - 1
        while place > 0:
            parent = (place - 1) // 2
            if not self._is_less(item, items[parent]):
                break
            items[place] = items[parent]
            place = parent
        items[place] = item

    def take(self) -> Item:
        """Remove and return a least item. Raises IndexError if there is none."""
        items = self._items
        least, last = items[0], items.pop()
        if not items:
            return least
        place, half = 0, len(items) // 2
        while place < half:
            child = 2 * place + 1
            if child + 1 < len(items) and self._is_less(items[child + 1], items[child]):
                child += 1
            if not self._is_less(items[child], last):
                break
            items[place] = items[child]
            place = child
        items[place] = last
        return least

    def _is_less(self, one: Item, other: Item) -> bool:
        return self._key(one) < self._key(other)


def _former_standby(members: Sequence[TaskMember]) -> dict[Task, list[TaskMember]]:
    """Return by task the members that have its state: former standbys first, then by offset."""
    found: dict[Task, list[tuple[bool, int, TaskMember]]] = {}
    for member in members:
        own = dict.fromkeys(_each(member.standby))
        for task in own:
            found.setdefault(task, []).append((False, -member.offsets.get(task, 0), member))
        for task, offset in member.offsets.items():
            if task not in own:
                found.setdefault(task, []).append((True, -offset, member))
    return {
        task: [member for _, _, member in sorted(rows, key=lambda row: row[:2])]
        for task, rows in found.items()
    }


def _each(tasks: Tasks) -> Iterable[Task]:
    return ((name, number) for name, numbers in tasks.items() for number in numbers)


def _by_partition(task: Task) -> tuple[int, str]:
    return task[1], task[0]


def _tasks_of(rows: Iterable[Task]) -> Tasks:
    found: dict[str, list[int]] = {}
    for name, number in sorted(rows):
        found.setdefault(name, []).append(number)
    return {name: tuple(numbers) for name, numbers in found.items()}


def _spread(hashed: int) -> int:
    unsigned = hashed & 0xFFFF_FFFF
    return unsigned ^ (unsigned >> 16)

"""The tasks of a streams group equal those that Apache Kafka's StickyTaskAssignor assigns, for
random members, topologies and former assignments.
"""

import random
import subprocess
from pathlib import Path

import pytest

from kraftsim.groups.rules_streams_assignor import (
    StickyTraits,
    SubtopologyTasks,
    TaskMember,
    assign_tasks,
)
from tests.apache_kafka.class_path import class_path, java

pytestmark = pytest.mark.interop
QUESTION_COUNT = 3000
ANSWER_SECONDS = 120
TRAITS = {
    "4.2.2": StickyTraits(computes_if_absent=False),
    "4.3.1": StickyTraits(computes_if_absent=False, skips_processes_with_task=False),
    "4.4.0": StickyTraits(),
}


def questions(has_offsets: bool) -> list[str]:
    """Return groups of up to 20 members of up to 12 processes, with what they ran before."""
    draw = random.Random(17)
    asked = []
    for _ in range(QUESTION_COUNT):
        names = [str(number) for number in range(draw.randint(1, draw.choice((2, 4, 14))))]
        counts = {name: draw.randint(1, draw.choice((3, 9))) for name in names}
        tasks = [f"{name}.{number}" for name in names for number in range(counts[name])]
        tasks += [f"{names[0]}.99", "gone.0"]
        processes = [f"{draw.getrandbits(64):x}" for _ in range(draw.randint(1, 12))]
        members = []
        for _ in range(draw.randint(1, draw.choice((3, 8, 20)))):
            active, standby = some(draw, tasks), some(draw, tasks)
            offsets = [f"{task}={draw.randint(0, 3)}" for task in some(draw, tasks)]
            if not has_offsets:
                offsets = []
            rows = "|".join(",".join(row) for row in (active, standby, offsets))
            members.append(f"{draw.getrandbits(64):x}|{draw.choice(processes)}|{rows}")
        subtopologies = ",".join(f"{name}:{counts[name]}:{draw.randint(0, 1)}" for name in names)
        asked.append(f"{draw.choice((0, 1, 2))} {subtopologies} {';'.join(members)}")
    return asked


def some(draw: random.Random, tasks: list[str]) -> list[str]:
    """Return some tasks, often none."""
    return draw.sample(tasks, draw.choice((0, 0, 1, 2, min(5, len(tasks)))))


def ours(question: str, traits: StickyTraits) -> str:
    """Return the assignment of kraftsim."""
    standbys, subtopologies, members = question.split(" ")
    rows = []
    for each in members.split(";"):
        member_id, process_id, active, standby, offsets = each.split("|")
        pairs = [row.split("=") for row in offsets.split(",") if row]
        rows.append(
            TaskMember(
                member_id=member_id,
                process_id=process_id,
                active=tasks_of(active),
                standby=tasks_of(standby),
                offsets={task_of(task): int(offset) for task, offset in pairs},
            )
        )
    topology = {}
    for each in subtopologies.split(","):
        name, count, is_stateful = each.split(":")
        topology[name] = SubtopologyTasks(int(count), is_stateful == "1")
    found = assign_tasks(rows, topology, int(standbys), traits)
    return ";".join(
        "|".join(
            (
                member_id,
                *(
                    "".join(f"{name}.{number}," for name in tasks for number in tasks[name])
                    for tasks in (found[member_id].active, found[member_id].standby)
                ),
            )
        )
        for member_id in sorted(found)
    )


def tasks_of(text: str) -> dict[str, tuple[int, ...]]:
    """Return tasks by subtopology."""
    found: dict[str, tuple[int, ...]] = {}
    for row in filter(None, text.split(",")):
        name, number = task_of(row)
        found[name] = (*found.get(name, ()), number)
    return found


def task_of(text: str) -> tuple[str, int]:
    """Return a task."""
    name, _, number = text.rpartition(".")
    return name, int(number)


@pytest.mark.parametrize("release", TRAITS)
def test_tasks_are_assigned_as_by_apache_kafka(release: str) -> None:
    asked = questions(has_offsets=release == "4.4.0")
    theirs = subprocess.run(
        [
            java(),
            "-XX:TieredStopAtLevel=1",
            "-cp",
            ":".join(map(str, class_path(release))),
            str(Path(__file__).with_name("StickyTasks.java")),
        ],
        input="\n".join(asked) + "\n",
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
        check=True,
    ).stdout.splitlines()
    assert len(theirs) == len(asked)
    for question, answer in zip(asked, theirs, strict=True):
        assert ours(question, TRAITS[release]) == answer, question

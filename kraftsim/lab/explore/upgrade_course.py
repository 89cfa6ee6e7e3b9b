"""The course of a run in which nodes changed their release: the path, the phases with the errors
that clients got in each, and the longest waits; in a few lines, from the event logs.

The report has all of it in detail (`kraftsim/analysis/upgrade_chapter.py`); this needs no dataset.
A record waits from being sent until it is acknowledged. Programs that run beside a scenario emit no
events: of them one sees the topics that only they use, and how long nothing was appended there.
Source: KIP-584, KIP-778.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from kraftsim.lab.workloads.phases import FAULTS, LIVENESS
from protocol.errors import ErrorCode

ERRORS: Final = ("InitProducerIdRefused", "RecordFailed", "TransactionErred")
KINDS: Final = (
    *("NodeStarted", "PhaseBegan", "RecordSent", "RecordAcknowledged", "RecordRead"),
    *("BatchAppended", "RunEnded", *ERRORS),
)
FIRST_PHASE: Final = "start"
INTERNAL: Final = "__"
ERROR_NAMES: Final = {int(error): error.name for error in ErrorCode}


class CoursePhase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase: when it began and how long it lasted, the errors of clients by name, and the longest
    wait of a record that was sent in it.
    """

    phase: str
    begin_seconds: float
    seconds: float
    errors: dict[str, int]
    longest_wait_seconds: float


class Stall(msgspec.Struct, frozen=True, kw_only=True):
    """The longest wait: how long, from when on, and whose."""

    seconds: float
    begin_seconds: float
    who: str


class UpgradeCourse(msgspec.Struct, frozen=True, kw_only=True):
    """`path` has the releases in the order in which nodes first ran them.

    `stall` is the longest wait of a record of the scenario; `own_stalls` the longest times without
    an append to the topics that only other programs use, the longest first.
    """

    path: tuple[str, ...]
    phases: tuple[CoursePhase, ...]
    stall: Stall | None
    own_stalls: tuple[Stall, ...]

    def lines(self) -> list[str]:
        """Return the text for people."""
        text = [f"  path: {' -> '.join(self.path)}"]
        for each in self.phases:
            errors = ", ".join(f"{count} {name}" for name, count in sorted(each.errors.items()))
            waited = (
                f", longest wait {each.longest_wait_seconds:.2f} s"
                if each.longest_wait_seconds
                else ""
            )
            text.append(
                f"  {each.begin_seconds:7.2f} s  {each.phase}: {each.seconds:.2f} s, "
                f"client errors: {errors or 'none'}{waited}"
            )
        if self.stall is not None:
            text.append(
                f"  longest stall: {self.stall.seconds:.2f} s from "
                f"{self.stall.begin_seconds:.2f} s on, {self.stall.who}"
            )
        text += [
            f"  longest pause of own clients: {each.seconds:.2f} s from {each.begin_seconds:.2f} s "
            f"on, {each.who}"
            for each in self.own_stalls[:OWN_STALLS_MAX]
        ]
        return text


OWN_STALLS_MAX: Final = 3


class CourseFact(msgspec.Struct, frozen=True, kw_only=True):
    """An event, with the fields of those in `KINDS`."""

    node: str
    n: int
    t_ns: int
    kind: str
    release: str = ""
    phase: str = ""
    client_id: str = ""
    topic: str = ""
    partition: int = -1
    record_key: str = ""
    error_code: int = 0


def upgrade_course(events: Path) -> UpgradeCourse | None:
    """Return the course of the run with these event logs; None if all nodes had one release."""
    found = sorted(_facts(events), key=lambda fact: (fact.t_ns, fact.node, fact.n))
    path = tuple(
        dict.fromkeys(fact.release for fact in found if fact.kind == "NodeStarted" and fact.release)
    )
    if len(path) < 2:
        return None
    waits = _waits(found)
    return UpgradeCourse(
        path=path,
        phases=tuple(_phases(found, waits)),
        stall=max(waits, key=lambda wait: wait.seconds, default=None),
        own_stalls=tuple(_own_stalls(found)),
    )


def _facts(events: Path) -> Iterator[CourseFact]:
    decoder = msgspec.json.Decoder(CourseFact)
    marks = tuple(f'"kind":"{kind}"'.encode() for kind in KINDS)
    for path in sorted(events.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            if any(mark in line for mark in marks):
                try:
                    yield decoder.decode(line)
                except msgspec.DecodeError:
                    continue  # a torn last line


def _waits(facts: list[CourseFact]) -> list[Stall]:
    """Return the wait of each record, from its first sending on, if it was acknowledged."""
    sent: dict[tuple[object, ...], int] = {}
    waits = []
    for fact in facts:
        if fact.kind not in ("RecordSent", "RecordAcknowledged"):
            continue
        key = (fact.client_id, fact.topic, fact.partition, fact.record_key)
        if fact.kind == "RecordSent":
            sent.setdefault(key, fact.t_ns)
        elif key in sent:
            began_ns = sent.pop(key)
            waits.append(
                Stall(
                    seconds=(fact.t_ns - began_ns) / 1e9,
                    begin_seconds=began_ns / 1e9,
                    who=f"a record of {fact.client_id} to {fact.topic}-{fact.partition}",
                )
            )
    return waits


def _phases(facts: list[CourseFact], waits: list[Stall]) -> Iterator[CoursePhase]:
    begins = [(0.0, FIRST_PHASE)] + [
        (fact.t_ns / 1e9, fact.phase)
        for fact in facts
        if fact.kind == "PhaseBegan" and fact.phase not in (FAULTS, LIVENESS)
    ]
    ended = [fact.t_ns / 1e9 for fact in facts if fact.kind == "RunEnded"]
    end = max(ended, default=facts[-1].t_ns / 1e9)
    for (begin, phase), (following, _) in zip(begins, [*begins[1:], (end, "")], strict=True):
        errors = Counter(
            _error(fact)
            for fact in facts
            if fact.kind in ERRORS and begin <= fact.t_ns / 1e9 < following
        )
        yield CoursePhase(
            phase=phase,
            begin_seconds=begin,
            seconds=following - begin,
            errors=dict(errors),
            longest_wait_seconds=max(
                (wait.seconds for wait in waits if begin <= wait.begin_seconds < following),
                default=0.0,
            ),
        )


def _error(fact: CourseFact) -> str:
    code = fact.error_code
    return ERROR_NAMES.get(code, str(code)) if code else fact.kind


def _own_stalls(facts: list[CourseFact]) -> list[Stall]:
    known = {fact.topic for fact in facts if fact.kind in ("RecordSent", "RecordRead")}
    appended: dict[str, list[float]] = {}
    for fact in facts:
        topic = fact.topic
        if fact.kind == "BatchAppended" and topic not in known and not topic.startswith(INTERNAL):
            appended.setdefault(topic, []).append(fact.t_ns / 1e9)
    stalls = []
    for topic, times in appended.items():
        gaps = [(later - former, former) for former, later in pairwise(times)]
        if gaps:
            seconds, begin = max(gaps)
            stalls.append(Stall(seconds=seconds, begin_seconds=begin, who=f"no append to {topic}"))
    return sorted(stalls, key=lambda stall: -stall.seconds)

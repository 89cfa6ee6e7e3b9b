"""Faults of clocks: the wall clock is wrong, jumps or stops, or both clocks drift.

Kafka uses the wall clock for timestamps of records, retention and the expiry of transactional ids,
and the monotonic one for time-outs and sessions. Wrong clocks may expire something too early or too
late; they must never break an invariant, because no safety rule of Kafka relies on clocks that
agree.
"""

from collections.abc import Mapping

from kraftsim.lab.faults.fault import Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import NANOSECONDS_PER_MILLISECOND, Injection


def clock_offset(injection: Injection) -> None:
    """A host's wall clock is wrong for a while: it drifts away from the correct time without a
    jump, and back without one.

    Let the wall clock deviate by `by_ms` (ahead, or behind if negative); it is effective when it is
    read.
    """
    clock = injection.simulation.host(injection.target).clock
    injection.lasting(
        clock.slew_for(
            injection.integer("by_ms") * NANOSECONDS_PER_MILLISECOND, injection.record_effect
        ),
        injection.integer("duration_ms"),
    )


CLOCK_OFFSET = FaultKind(
    name="clock-offset",
    title="a wall clock that is wrong",
    family=Family.CLOCK,
    inject=clock_offset,
    triggers_on=("time", "event"),
    params={"by_ms": -2000, "duration_ms": 0},
    draws={"by_ms": OneOf((-5000, -500, 500, 5000)), "duration_ms": Between(500, 8000)},
)


def clock_jump_forward(injection: Injection) -> None:
    """A host's wall clock jumps forward: a virtual machine that was suspended, a first NTP
    synchronisation.

    Healing corrects it.

    Set the wall clock forward; it is effective when it is read.
    """
    clock = injection.simulation.host(injection.target).clock
    injection.lasting(
        clock.step_for(
            injection.integer("by_ms") * NANOSECONDS_PER_MILLISECOND, injection.record_effect
        ),
        injection.integer("duration_ms"),
    )


ASSIGNS_AT_ONCE: Mapping[str, str] = {"group.consumer.assignment.interval.ms": "0"}
"""An assignment of a consumer group is stored with its time, and the next one waits for the
interval after it: after a jump of hours no coordinator assigns anything for hours, in Apache Kafka
as well (4.4.0, GroupMetadataManager.canComputeNextTargetAssignment). With 0 it ignores the time.
"""
CLOCK_JUMP_FORWARD = FaultKind(
    name="clock-jump-forward",
    title="a wall clock that jumps forward",
    family=Family.CLOCK,
    inject=clock_jump_forward,
    params={"by_ms": 3_600_000, "duration_ms": 0},
    draws={
        "by_ms": OneOf((50, 10_000, 3_600_000, 8 * 86_400_000)),
        "duration_ms": Between(200, 6000),
    },
    settings=ASSIGNS_AT_ONCE,
)


def clock_jump_back(injection: Injection) -> None:
    """A host's wall clock jumps back: times repeat, and records are older than those before them.

    Healing corrects it.

    Set the wall clock back; it is effective when it is read.
    """
    clock = injection.simulation.host(injection.target).clock
    injection.lasting(
        clock.step_for(
            -injection.integer("by_ms") * NANOSECONDS_PER_MILLISECOND, injection.record_effect
        ),
        injection.integer("duration_ms"),
    )


CLOCK_JUMP_BACK = FaultKind(
    name="clock-jump-back",
    title="a wall clock that jumps back",
    family=Family.CLOCK,
    inject=clock_jump_back,
    params={"by_ms": 10_000, "duration_ms": 0},
    draws={"by_ms": OneOf((50, 1000, 10_000, 3_600_000)), "duration_ms": Between(200, 6000)},
)


def clock_frozen(injection: Injection) -> None:
    """A host's wall clock is frozen for a while: all timestamps are equal, and nothing expires.

    Freeze the wall clock; it is effective when it is read and is late.
    """
    clock = injection.simulation.host(injection.target).clock
    injection.lasting(clock.freeze_for(injection.record_effect), injection.integer("duration_ms"))


CLOCK_FROZEN = FaultKind(
    name="clock-frozen",
    title="a frozen wall clock",
    family=Family.CLOCK,
    inject=clock_frozen,
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(500, 8000)},
)


def clock_drift(injection: Injection) -> None:
    """A host's clocks run too fast or too slow for a while, the monotonic one as well: its
    time-outs come too early or too late.

    Let both clocks drift; it is effective once one is read that is a millisecond off.
    """
    clock = injection.simulation.host(injection.target).clock
    injection.lasting(
        clock.drift_for(injection.integer("ppm"), injection.record_effect),
        injection.integer("duration_ms"),
    )


CLOCK_DRIFT = FaultKind(
    name="clock-drift",
    title="clocks that run too fast or too slow",
    family=Family.CLOCK,
    inject=clock_drift,
    triggers_on=("time", "event"),
    params={"ppm": 100_000, "duration_ms": 0},
    draws={
        "ppm": OneOf((-500_000, -100_000, -1000, 1000, 100_000, 1_000_000)),
        "duration_ms": Between(1000, 8000),
    },
)


FAULTS = (
    CLOCK_OFFSET,
    CLOCK_JUMP_FORWARD,
    CLOCK_JUMP_BACK,
    CLOCK_FROZEN,
    CLOCK_DRIFT,
)

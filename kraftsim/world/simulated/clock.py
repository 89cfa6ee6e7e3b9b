"""The clocks of a simulated machine: driven by virtual time, with the deviations that faults cause.

The wall clock may deviate, jump, or freeze. The monotonic clock never jumps; a drift makes both run
too fast or too slow. The effect of a fault on the wall clock is undone when it ends, without a jump
if the fault had none either.
"""

from collections.abc import Callable
from typing import Protocol

NANOSECONDS = 1_000_000_000
NANOSECONDS_PER_MILLISECOND = 1_000_000
PARTS = 1_000_000
FIRST_MOMENT_NS = 1_700_000_000 * NANOSECONDS
"""The wall clock at the beginning of every simulation (2023-11-14): a constant, so that a seed
always gives the same timestamps.
"""
SLOWEST_PPM = -900_000
"""The minimum speed of a clock under all faults together: a tenth."""
SLEW_DIVISOR = 2
"""A clock that is corrected without a jump runs at 1.5 times, or half, its speed until it is
correct.
"""

EffectRecorder = Callable[[str], None]


class TrueTime(Protocol):
    """The source of true virtual time: the loop.

    An attribute, because it is used for every event, deadline and delay.
    """

    now_ns: int


class Oddity(Protocol):
    """A deviation of a wall clock."""

    record_effect: EffectRecorder | None

    def shift_ns(self, right_ns: int) -> int:
        """Return how far the wall clock is ahead (negative: behind) at the correct time
        `right_ns`.
        """
        ...


class ClockStep:
    """The wall clock has a constant offset, after a jump."""

    def __init__(self, by_ns: int, record_effect: EffectRecorder | None) -> None:
        self.by_ns = by_ns
        self.record_effect = record_effect

    def shift_ns(self, right_ns: int) -> int:
        """Return the offset, the same at every time."""
        return self.by_ns


class Freeze:
    """The wall clock is frozen."""

    def __init__(self, at_ns: int, record_effect: EffectRecorder | None) -> None:
        self.at_ns = at_ns
        self.record_effect = record_effect

    def shift_ns(self, right_ns: int) -> int:
        """Return how far it is behind."""
        return self.at_ns - right_ns


class Slew:
    """The wall clock moves gradually from one offset to another; it never jumps and never goes
    back.
    """

    def __init__(
        self, *, from_ns: int, to_ns: int, since_ns: int, record_effect: EffectRecorder | None
    ) -> None:
        self.from_ns = from_ns
        self.to_ns = to_ns
        self.since_ns = since_ns
        self.record_effect = record_effect

    def shift_ns(self, right_ns: int) -> int:
        """Return the present offset."""
        most_ns = (right_ns - self.since_ns) // SLEW_DIVISOR
        distance_ns = self.to_ns - self.from_ns
        return self.from_ns + (
            min(distance_ns, most_ns) if distance_ns > 0 else max(distance_ns, -most_ns)
        )


class HostClock:
    """All clocks of one host."""

    __slots__ = (
        "_drifts",
        "_local_base_ns",
        "_oddities",
        "_offset_ns",
        "_shift_ns",
        "_true",
        "_true_base_ns",
        "_undrifted_lead_ns",
        "drift_ppm",
        "monotonic_lead_ns",
        "wall_lead_ns",
    )

    def __init__(self, true: TrueTime) -> None:
        self._true = true
        self._offset_ns = FIRST_MOMENT_NS
        self.drift_ppm = 0
        self._true_base_ns = 0
        self._local_base_ns = 0
        self._shift_ns = 0
        """The lead of the monotonic clock over true time, while it does not drift."""
        self._oddities: list[Oddity] = []
        self._drifts: list[tuple[int, EffectRecorder]] = []
        self._undrifted_lead_ns = 0
        """The lead of the monotonic clock over true time before faults made it drift."""
        self.monotonic_lead_ns: int | None = 0
        """The constant lead of the monotonic clock over true time; None while it drifts."""
        self.wall_lead_ns: int | None = FIRST_MOMENT_NS
        """The same of the wall clock, which may deviate in more ways."""

    def wall_ns(self) -> int:
        """Return nanoseconds since 1970 by this host's clock."""
        return self._deviating_ns() if self._oddities else self.monotonic_ns() + self._offset_ns

    def wall_ms(self) -> int:
        """Return milliseconds since 1970 by this host's clock."""
        if self.wall_lead_ns is not None:
            return (self._true.now_ns + self.wall_lead_ns) // NANOSECONDS_PER_MILLISECOND
        return self.wall_ns() // NANOSECONDS_PER_MILLISECOND

    def stamp_ms(self) -> int:
        """Return the same for a log: no outcome depends on it, so that faults are not effective by
        it.
        """
        if self.wall_lead_ns is not None:
            return (self._true.now_ns + self.wall_lead_ns) // NANOSECONDS_PER_MILLISECOND
        right_ns = self._right_ns()
        if self._oddities:
            right_ns += sum(oddity.shift_ns(right_ns) for oddity in self._oddities)
        return right_ns // NANOSECONDS_PER_MILLISECOND

    def monotonic_ns(self) -> int:
        """Return nanoseconds since the run began by this host's clock."""
        if self.monotonic_lead_ns is not None:
            return self._true.now_ns + self.monotonic_lead_ns
        local_ns = self._drifting_ns()
        lead_ns = local_ns - self._true.now_ns - self._shift_ns
        if abs(lead_ns) >= NANOSECONDS_PER_MILLISECOND:
            for _, record_effect in self._drifts:
                record_effect(
                    "a clock was read that has drifted by "
                    f"{lead_ns // NANOSECONDS_PER_MILLISECOND} ms"
                )
        return local_ns

    def monotonic_ms(self) -> int:
        """Return milliseconds of the monotonic clock."""
        if self.monotonic_lead_ns is not None:
            return (self._true.now_ns + self.monotonic_lead_ns) // NANOSECONDS_PER_MILLISECOND
        return self.monotonic_ns() // NANOSECONDS_PER_MILLISECOND

    def true_delay_ns(self, local_delay_ns: int) -> int:
        """Convert a delay of this host's clock to true time."""
        return (
            local_delay_ns * PARTS // (PARTS + self.drift_ppm) if self.drift_ppm else local_delay_ns
        )

    def jump(self, by_ns: int) -> None:
        """Set the wall clock forward or, if negative, back, for good."""
        self._offset_ns += by_ns
        self._look()

    def drift(self, drift_ppm: int) -> None:
        """Make the clocks run too fast (positive) or too slow by parts per million, from now on."""
        assert drift_ppm > -PARTS, "a clock does not run backwards"
        self._local_base_ns, self._true_base_ns = (
            self._drifting_ns() if self.drift_ppm else self.monotonic_ns(),
            self._true.now_ns,
        )
        self._shift_ns = self._local_base_ns - self._true_base_ns
        self.drift_ppm = drift_ppm
        self._look()

    # ---- faults

    def step_for(self, by_ns: int, record_effect: EffectRecorder) -> Callable[[], None]:
        """Make the wall clock jump, until the returned function is called."""
        return self._odd_for(ClockStep(by_ns, record_effect))

    def freeze_for(self, record_effect: EffectRecorder) -> Callable[[], None]:
        """Freeze the wall clock, until the returned function is called."""
        right_ns = self._right_ns()
        return self._odd_for(Freeze(right_ns, record_effect))

    def slew_for(self, by_ns: int, record_effect: EffectRecorder) -> Callable[[], None]:
        """Move the wall clock to an offset without a jump; the returned function moves it back."""
        slew = Slew(from_ns=0, to_ns=by_ns, since_ns=self._right_ns(), record_effect=record_effect)
        self._add(slew)

        def turn_back() -> None:
            self._remove(slew)
            self._slew_back(slew.shift_ns(self._right_ns()))

        return turn_back

    def drift_for(self, drift_ppm: int, record_effect: EffectRecorder) -> Callable[[], None]:
        """Make both clocks drift, in addition to other drifts; the returned function ends it.

        Afterwards the monotonic clock keeps its lead, because it must not go back; the wall clock
        loses it without a jump.
        """
        drift = (drift_ppm, record_effect)
        if not self._drifts:
            self._undrifted_lead_ns = self._lead_ns()
        self._drifts.append(drift)
        self._drift_on()

        def stop() -> None:
            self._drifts.remove(drift)
            self._drift_on()
            if not self._drifts:
                gained_ns = self._lead_ns() - self._undrifted_lead_ns
                self._offset_ns -= gained_ns
                self._slew_back(gained_ns)

        return stop

    def _drift_on(self) -> None:
        self.drift(max(sum(drift_ppm for drift_ppm, _ in self._drifts), SLOWEST_PPM))

    @property
    def error_ns(self) -> int:
        """The lead of the wall clock over true time."""
        right_ns = self._right_ns()
        return (
            right_ns
            + sum(oddity.shift_ns(right_ns) for oddity in self._oddities)
            - FIRST_MOMENT_NS
            - self._true.now_ns
        )

    def _odd_for(self, oddity: Oddity) -> Callable[[], None]:
        self._add(oddity)
        return lambda: self._remove(oddity)

    def _slew_back(self, from_ns: int) -> None:
        self._add(Slew(from_ns=from_ns, to_ns=0, since_ns=self._right_ns(), record_effect=None))

    def _add(self, oddity: Oddity) -> None:
        self._oddities.append(oddity)
        self._look()

    def _remove(self, oddity: Oddity) -> None:
        self._oddities.remove(oddity)
        self._look()

    def _look(self) -> None:
        """Note whether the clocks run beside true time, by how much they lead then."""
        is_steady = self.drift_ppm == 0
        self.monotonic_lead_ns = self._shift_ns if is_steady else None
        self.wall_lead_ns = (
            self._shift_ns + self._offset_ns if is_steady and not self._oddities else None
        )

    def _deviating_ns(self) -> int:
        """Return the wall clock with all deviations, and report to their faults that they are
        effective.
        """
        right_ns = self._right_ns()
        wall_ns = right_ns
        for oddity in list(self._oddities):
            shift_ns = oddity.shift_ns(right_ns)
            wall_ns += shift_ns
            if oddity.record_effect is None:
                if shift_ns == 0:
                    self._remove(oddity)  # it is back
            elif abs(shift_ns) >= NANOSECONDS_PER_MILLISECOND:
                oddity.record_effect(
                    f"the wall clock was read {abs(shift_ns) // NANOSECONDS_PER_MILLISECOND} ms "
                    f"{'ahead' if shift_ns > 0 else 'behind'}"
                )
        return wall_ns

    def _right_ns(self) -> int:
        """Return the wall clock without deviations."""
        local_ns = self._drifting_ns() if self.drift_ppm else self._true.now_ns + self._shift_ns
        return local_ns + self._offset_ns

    def _drifting_ns(self) -> int:
        return (
            self._local_base_ns
            + (self._true.now_ns - self._true_base_ns) * (PARTS + self.drift_ppm) // PARTS
        )

    def _lead_ns(self) -> int:
        """Return the lead of the monotonic clock over true time."""
        return (
            self._drifting_ns() if self.drift_ppm else self._true.now_ns + self._shift_ns
        ) - self._true.now_ns

"""A fault that is being done: what the functions of the kinds work with, and who counts what came of it."""

from collections.abc import Callable

from kraftsim.events.runs import FaultBit, FaultEnded, FaultFired
from kraftsim.faults.fault import AT_THE_TRIGGER, Fault, FaultKind, Value
from kraftsim.faults.targets import directions
from kraftsim.world.simulated import FileClass, Host, Occasion, Simulation

NANOSECONDS_PER_MILLISECOND = 1_000_000


class Strike:
    """One armed fault. It has `fired` once it was done, and it has `bit` once it changed an outcome; the harness's log says both."""

    def __init__(self, fault: Fault, kind: FaultKind, simulation: Simulation) -> None:
        self.fault = fault
        self.simulation = simulation
        self.occasion = Occasion()
        self.has_fired = False
        self.fired_at_ns: int | None = None
        self.has_bitten = False
        self.is_over = False
        """Whether it will do nothing any more: it was disarmed, or it lasted and was ended."""
        self._kind = kind
        self._undo: Callable[[], None] | None = None

    @property
    def target(self) -> str:
        """Name of the target; of the host at which the trigger went off if the fault does not name one."""
        if self.fault.target != AT_THE_TRIGGER:
            return self.fault.target
        assert self.occasion.host is not None, f"{self.fault} needs a target: nothing happens at a host when its trigger goes off"
        return self.occasion.host

    def go_off(self, occasion: Occasion) -> None:
        """Do it. The action of the trigger."""
        if self.is_over or self.has_fired:
            return
        self.occasion = occasion
        self.has_fired = True
        self.fired_at_ns = self.simulation.now_ns
        self._note(FaultFired(fault=self.fault.kind, target=self.target, trigger=str(self.fault.trigger)))
        self._kind.strike(self)

    def end(self) -> None:
        """Undo what lasts, and never strike if that has not happened yet."""
        if self.is_over:
            return
        self.is_over = True
        if self._undo is not None:
            self._undo()
            self._note(FaultEnded(fault=self.fault.kind, target=self.target))

    # ---- for the kinds

    def bite(self, effect: str) -> None:
        """Say that an outcome was changed; only the first time counts."""
        if not self.has_bitten:
            self.has_bitten = True
            self._note(FaultBit(fault=self.fault.kind, target=self.target, effect=effect))

    def integer(self, name: str) -> int:
        """Return a parameter that is a number."""
        value = self._value(name)
        assert isinstance(value, int), f"{name} of {self.fault.kind} is a number"
        return value

    def text(self, name: str) -> str | None:
        """Return a parameter that is a text or absent."""
        value = self._value(name)
        assert value is None or isinstance(value, str), f"{name} of {self.fault.kind} is a text"
        return value

    def file_class(self) -> FileClass | None:
        """Return the class of files that is struck; None for all."""
        name = self.text("file_class")
        return None if name is None else FileClass(name)

    def start_later(self, host: Host, after_ms: int) -> None:
        """Start a host again that is down now, unless somebody else does it first."""
        incarnation = host.process.incarnation

        def start() -> None:
            if not host.is_alive and host.process.incarnation == incarnation:
                self.simulation.restart(host)

        self.after(after_ms, start)

    def directions(self) -> list[tuple[str, str]]:
        """Return the links that the target names."""
        return directions(self.target, list(self.simulation.hosts))

    def lasting(self, undo: Callable[[], None], duration_ms: int) -> None:
        """Undo it after a while; 0 means not before `end` is called."""
        self._undo = undo
        if duration_ms:
            self.after(duration_ms, self.end)

    def after(self, duration_ms: int, function: Callable[[], object]) -> None:
        """Call a function of the harness later."""
        simulation = self.simulation
        simulation.triggers.at(simulation.now_ns + duration_ms * NANOSECONDS_PER_MILLISECOND, lambda occasion: function())

    def _value(self, name: str) -> Value:
        return self.fault.params.get(name, self._kind.params[name])

    def _note(self, event: FaultFired | FaultEnded | FaultBit) -> None:
        self.simulation.world_of(self.simulation.harness).note(event)

"""An armed fault in simulation: the interface for the functions of the kinds, and the record of its
effect.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from kraftsim.events.runs import FaultEnded, FaultInjected, FaultTookEffect
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    CONTACTED,
    CONTACTING,
    LEADER_TARGET,
    Aim,
    Fault,
    FaultKind,
    Value,
    directions,
    is_group,
    members,
    names_leader,
    with_names,
)
from kraftsim.lab.faults.state_tracker import state_tracker_of
from kraftsim.world.interface import stream
from kraftsim.world.simulated import FileClass, Host, Simulation, TriggerContext

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream is keyed by the fault)

    from kraftsim.lab.faults.recorded_answers import RecordedAnswers

NANOSECONDS_PER_MILLISECOND = 1_000_000


class Injection:
    """One armed fault.

    It has fired once it was injected, and is effective once it changed an outcome; the harness's
    log has events of both.
    """

    def __init__(
        self, fault: Fault, kind: FaultKind, simulation: Simulation, key: str | None = None
    ) -> None:
        self.fault = fault
        self.simulation = simulation
        self.trigger_context = TriggerContext()
        self.has_fired = False
        self.fired_at_ns: int | None = None
        self.is_effective = False
        self.is_over = False
        """Whether it has ended: it was disarmed, or it lasted and was undone."""
        self.recorded: RecordedAnswers | None = None
        """The answers since it was armed, for kinds that replay answers."""
        self._kind = kind
        self._key = key if key is not None else msgspec.json.encode(fault, order="sorted").decode()
        self._random: Random | None = None
        self._target: str | None = None
        self._undo: Callable[[], None] | None = None
        self._endings: list[Callable[[], object]] = []
        if names_leader(fault.target):
            state_tracker_of(simulation)

    @property
    def target(self) -> str:
        """The target, resolved when the trigger fired; before that, as the fault names it."""
        if self._target is None:
            return (
                self.fault.target if self.fault.target != AT_THE_TRIGGER else self._at_the_trigger()
            )
        return self._target

    @property
    def key(self) -> str:
        """What keys the random numbers of this fault."""
        return self._key

    @property
    def random(self) -> "Random":
        """Random numbers of this fault alone, keyed by the seed and the fault: leaving out this
        fault does not change those of others.
        """
        if self._random is None:
            self._random = stream(self.simulation.seed, "fault", 1, self._key)
        return self._random

    def go_off(self, trigger_context: TriggerContext) -> None:
        """Inject the fault.

        The action of the trigger; a fault with a leader as its target waits for one.
        """
        if self.is_over or self.has_fired:
            return
        self.trigger_context = trigger_context
        leader = self._leader()
        if names_leader(self.fault.target) and leader is None:
            self.finally_(
                state_tracker_of(self.simulation).when_led(
                    lambda node: self.go_off(trigger_context)
                )
            )
            return
        self._target = self._understood(leader)
        self.has_fired = True
        self.fired_at_ns = self.simulation.now_ns
        self._emit(
            FaultInjected(
                fault=self.fault.kind, target=self.target, trigger=str(self.fault.trigger)
            )
        )
        if self._kind.aim is not Aim.HOST or self.target in self.simulation.hosts:
            try:
                self._kind.inject(self)
            # a trigger fires within a node: without this it would look like the node's own failure
            except Exception as error:
                self.simulation.break_off(
                    f"the fault {self.fault.kind} at {self.target} failed", error
                )

    def end(self) -> None:
        """Undo a lasting effect, and disarm the fault if it has not fired yet."""
        if self.is_over:
            return
        self.is_over = True
        for ending in self._endings:
            ending()
        if self._undo is not None:
            self._undo()
            self._emit(FaultEnded(fault=self.fault.kind, target=self.target))

    # ---- for the kinds

    @property
    def is_before(self) -> bool:
        """Return whether the trigger fired before its event: only then can a frame be dropped,
        delayed or changed.
        """
        return getattr(self.fault.trigger, "moment", "") == "before"

    def record_effect(self, effect: str) -> None:
        """Report that the fault is effective; only the first call counts."""
        if not self.is_effective:
            self.is_effective = True
            self._emit(FaultTookEffect(fault=self.fault.kind, target=self.target, effect=effect))

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
        """Return the class of files that is affected; None for all."""
        name = self.text("file_class")
        return None if name is None else FileClass(name)

    def start_later(self, host: Host, after_ms: int) -> None:
        """Restart a host that is down now, unless another fault does it first."""
        incarnation = host.process.incarnation

        def start() -> None:
            if not host.is_alive and host.process.incarnation == incarnation:
                self.simulation.restart(host)

        self.after(after_ms, start)

    def number_or_none(self, name: str) -> int | None:
        """Return a parameter that is a number or absent."""
        return None if self._value(name) is None else self.integer(name)

    def flag(self, name: str) -> bool:
        """Return a parameter that is true or false."""
        return bool(self.integer(name))

    def host(self) -> Host:
        """Return the host that the target names."""
        return self.simulation.host(self.target)

    def hosts(self) -> list[str]:
        """Return the hosts that the target names; for a kind without targets, all hosts."""
        all_hosts = [name for name in self.simulation.hosts if name != self.simulation.harness.name]
        return (
            all_hosts
            if self.target == AT_THE_TRIGGER
            else members(self.target, all_hosts, may_lack=True)
        )

    def when_led(self, act: Callable[[str], None]) -> None:
        """Call a function with the name of the leader: now, or as soon as there is one."""
        leader = self._leader(is_wanted=True)
        if leader is not None:
            act(leader)
        else:
            self.finally_(state_tracker_of(self.simulation).when_led(act))

    def directions(self) -> list[tuple[str, str]]:
        """Return the links that the target names, of existing hosts: a client may not exist yet, or
        not in this run.
        """
        return directions(self.target, list(self.simulation.hosts), may_lack=True)

    def lasting(self, undo: Callable[[], None], duration_ms: int) -> None:
        """End the fault after a while; 0 means not before `end` is called."""
        self._undo = undo
        if duration_ms:
            self.after(duration_ms, self.end)

    def finally_(self, ending: Callable[[], object]) -> None:
        """Call a function when this fault is over, whether it has fired or not."""
        self._endings.append(ending)

    def after(self, duration_ms: int, function: Callable[[], object]) -> None:
        """Call a function of the harness later."""
        simulation = self.simulation
        simulation.triggers.at(
            simulation.now_ns + duration_ms * NANOSECONDS_PER_MILLISECOND,
            lambda trigger_context: function(),
        )

    def _leader(self, *, is_wanted: bool = False) -> str | None:
        return (
            state_tracker_of(self.simulation).leader()
            if is_wanted or names_leader(self.fault.target)
            else None
        )

    def _understood(self, leader: str | None) -> str:
        """Resolve the target: the name of the leader, and, for a kind with one host, one host of a
        group.
        """
        target = self.fault.target
        if target == AT_THE_TRIGGER:
            return self._at_the_trigger()
        context = self.trigger_context
        names = {LEADER_TARGET: leader, CONTACTING: context.host, CONTACTED: context.server}
        target = with_names(target, {word: name for word, name in names.items() if name})
        if self._kind.aim is Aim.HOST and is_group(target):
            hosts = members(target, list(self.simulation.hosts), may_lack=True)
            return self.random.choice(hosts) if hosts else target
        return target

    def _at_the_trigger(self) -> str:
        if self._kind.aim is Aim.ALL:
            return AT_THE_TRIGGER
        assert self.trigger_context.host is not None, (
            f"{self.fault} needs a target: its trigger does not fire at a host"
        )
        return self.trigger_context.host

    def _value(self, name: str) -> Value:
        return self.fault.params.get(name, self._kind.params[name])

    def _emit(self, event: FaultInjected | FaultEnded | FaultTookEffect) -> None:
        self.simulation.world_of(self.simulation.harness).emit(event)

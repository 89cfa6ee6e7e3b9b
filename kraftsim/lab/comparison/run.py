"""Runs one plan over one design in virtual time, and counts the outcome from the logs.

Source: see `plan.py`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random  # noqa: TID251  (plans are drawn from seeds, outside of any simulation)
from typing import Final

from kraftsim.clients.events import RecordAcknowledged
from kraftsim.events.event import Event
from kraftsim.lab.comparison.applications import Application, Fenced
from kraftsim.lab.comparison.plan import (
    AFTERWARDS_RECORDS,
    BROKERS,
    ComparisonOutcome,
    ComparisonPlan,
    Mishap,
    MishapKind,
    System,
    count_logs,
    draw_plan,
    longest_silence_ms,
)
from kraftsim.lab.comparison.sides import Side, side_of
from kraftsim.lease_pid.events import LeasedMessageRefused, LeaseGranted, LeaseIdsReserved
from kraftsim.partitions.events import ProduceRefused
from kraftsim.producer_ids.events import ProducerIdBlockReceived, ProducerIdReturned
from kraftsim.server.events_connections import FrameSent
from kraftsim.world.simulated import Host, Simulation, collected_after
from protocol.errors import ErrorCode

LIMIT_SECONDS: Final = 300.0
READY_SECONDS: Final = 60.0
READER: Final = "oracle"
IDENTITY_ERRORS: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.PRODUCER_FENCED,
    }
)
OBSERVED: Final = (
    RecordAcknowledged,
    FrameSent,
    ProduceRefused,
    ProducerIdReturned,
    ProducerIdBlockReceived,
    LeasedMessageRefused,
    LeaseGranted,
    LeaseIdsReserved,
)


@dataclass(slots=True)
class Counts:
    """Counters of a run. `acknowledged`: keys that were acknowledged to some producer."""

    acknowledged: list[str] = field(default_factory=list)
    acknowledged_ns: dict[int, list[int]] = field(default_factory=dict)
    requests: int = 0
    refusals: int = 0
    fenced: int = 0
    ids_used: int = 0
    ids_taken: int = 0
    kills_ns: list[int] = field(default_factory=list)
    ends_ns: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class WriterInstance:
    """One application on a host of its own. `limit`: the number at which it stops."""

    writer: int
    host: Host
    application: Application
    limit: int
    next_number: int = 0
    task: "asyncio.Task[None] | None" = None


class Run:
    """One run in progress."""

    def __init__(self, system: System, plan: ComparisonPlan, simulation: Simulation) -> None:
        self.counts = Counts()
        self.instances: list[WriterInstance] = []
        self.logs: dict[int, list[str]] = {}
        """The keys in the logs at the end, by writer."""
        self.requests_before = 0
        """Requests of applications that have been restarted since."""
        self._system = system
        self._plan = plan
        self._simulation = simulation
        self._commits_count = system.writing.value == "transactional"
        simulation.observe(self._observe, OBSERVED)
        self.side: Side = side_of(system, simulation, plan)

    def run(self) -> ComparisonOutcome:
        """Run the plan to its end, and count."""
        simulation = self._simulation
        simulation.run_until(self.side.ready(), READY_SECONDS)
        for writer in range(self._plan.writers):
            self._begin(writer, f"writer-{writer}-a", None)
        begun_ns = simulation.now_ns
        for at_ms, act in self._timeline():
            simulation.run_for(max(at_ms / 1000 - (simulation.now_ns - begun_ns) / 1e9, 0))
            act()
        simulation.run_until(
            lambda: all(
                instance.task is not None and instance.task.done() for instance in self.instances
            ),
            LIMIT_SECONDS,
        )
        finished_ms = (simulation.now_ns - begun_ns) // 1_000_000
        self.logs = self._logs()
        return self._outcome(self.logs, finished_ms)

    # Incarnations of writers
    # ----------------------------------------------------------------------------------------------

    def _begin(self, writer: int, name: str, predecessor: WriterInstance | None) -> WriterInstance:
        host = self._simulation.add_host(name)
        before = predecessor.application if predecessor is not None else None
        application = self.side.application(host, name, writer, before, self.counts.acknowledged)
        instance = WriterInstance(writer, host, application, self._plan.records_each)
        self.instances.append(instance)
        instance.task = self._simulation.spawn(host, self._live(instance))
        return instance

    async def _live(self, instance: WriterInstance) -> None:
        """Work until all is written.

        A writer that is fenced and has no successor restarts on the same host.
        """
        while True:
            try:
                await self._work(instance)
                break
            except Fenced:
                self.counts.fenced += 1
            if instance is not self._last_of(instance.writer):
                break
            self.requests_before += self.side.requests_of(instance.application)
            name = f"{instance.host.name}{self.counts.fenced}"
            instance.application = self.side.application(
                instance.host, name, instance.writer, instance.application, self.counts.acknowledged
            )
        self.counts.ends_ns[instance.writer] = self._simulation.now_ns

    async def _work(self, instance: WriterInstance) -> None:
        """Initialise the producer, find the end of the log, and continue from there."""
        await instance.application.begin()
        instance.next_number = await self._position(instance)
        while instance.next_number < instance.limit:
            number, instance.next_number = instance.next_number, instance.next_number + 1
            await instance.application.write(number)
            burst = self._plan.bursts[instance.writer]
            if instance.next_number % burst == 0:
                await asyncio.sleep(self._plan.pause_ms * burst / 1000)
        await instance.application.finish()

    def _last_of(self, writer: int) -> WriterInstance:
        return [instance for instance in self.instances if instance.writer == writer][-1]

    async def _position(self, instance: WriterInstance) -> int:
        """Return the first record number that is not in the log."""
        keys = await self.side.keys(instance.host, instance.writer)
        there = {int(key.partition(".")[2]) for key in keys}
        return next(number for number in range(self._plan.records_each + 1) if number not in there)

    # Mishaps
    # ----------------------------------------------------------------------------------------------

    def _timeline(self) -> list[tuple[int, Callable[[], None]]]:
        moments: list[tuple[int, Callable[[], None]]] = []
        for mishap in self._plan.mishaps:
            moments += self._moments(mishap)
        return sorted(moments, key=lambda each: each[0])

    def _moments(self, mishap: Mishap) -> list[tuple[int, Callable[[], None]]]:
        end_ms = mishap.at_ms + mishap.duration_ms
        broker, writer = f"broker-{mishap.target}", f"writer-{mishap.target}-a"
        match mishap.kind:
            case MishapKind.KILL:
                return [
                    (mishap.at_ms, lambda: self._kill(broker)),
                    (end_ms, lambda: self._restart(broker)),
                ]
            case MishapKind.PAUSE:
                middle_ms = mishap.at_ms + mishap.duration_ms // 2
                return [
                    (mishap.at_ms, lambda: self._pause(broker)),
                    (middle_ms, self._reset_all),
                    (end_ms, lambda: self._resume(broker)),
                ]
            case MishapKind.CUT:
                return [(mishap.at_ms, lambda: self._cut(writer))]
            case MishapKind.SLEEP:
                return [
                    (mishap.at_ms, lambda: self._pause(writer, resets=True)),
                    (end_ms, lambda: self._resume(writer)),
                ]
            case MishapKind.ZOMBIE:
                return [
                    (mishap.at_ms, lambda: self._pause(writer)),
                    (
                        mishap.at_ms + mishap.successor_after_ms,
                        lambda: self._succeed(mishap.target),
                    ),
                    (end_ms, lambda: self._awake(mishap.target)),
                ]

    def _kill(self, name: str) -> None:
        if self._simulation.host(name).is_alive:
            self.counts.kills_ns.append(self._simulation.now_ns)
            self._simulation.kill(name)

    def _restart(self, name: str) -> None:
        if not self._simulation.host(name).is_alive:
            self._simulation.restart(name)

    def _pause(self, name: str, *, resets: bool = False) -> None:
        host = self._simulation.host(name)
        if host.is_alive and not host.process.is_paused:
            self._simulation.pause(name)
            if resets:
                self._simulation.network.cut(name)

    def _resume(self, name: str) -> None:
        host = self._simulation.host(name)
        if host.is_alive and host.process.is_paused:
            self._simulation.resume(name)

    def _cut(self, name: str) -> None:
        self._simulation.network.cut(name)

    def _reset_all(self) -> None:
        for instance in self.instances:
            self._simulation.network.cut(instance.host.name)

    def _succeed(self, writer: int) -> None:
        predecessor = next(instance for instance in self.instances if instance.writer == writer)
        self._begin(writer, f"writer-{writer}-b", predecessor)

    def _awake(self, writer: int) -> None:
        """Resume the zombie: it sends what it had buffered, and a few more records before it learns
        that it was replaced.
        """
        zombie = next(instance for instance in self.instances if instance.writer == writer)
        zombie.limit = min(zombie.limit, zombie.next_number + AFTERWARDS_RECORDS)
        self._resume(zombie.host.name)

    # Counting
    # ----------------------------------------------------------------------------------------------

    def _logs(self) -> dict[int, list[str]]:
        """Read every log when all brokers are up again."""
        for number in range(1, BROKERS + 1):
            self._resume(f"broker-{number}")
            self._restart(f"broker-{number}")
        oracle = self._simulation.add_host(READER)
        logs = {}
        for writer in range(self._plan.writers):
            found = self._simulation.run_until(
                self._simulation.spawn(oracle, self._read(oracle, writer)), LIMIT_SECONDS
            )
            logs[writer] = list(found or ())
        return logs

    async def _read(self, oracle: Host, writer: int) -> list[str]:
        return list(await self.side.keys(oracle, writer))

    def _observe(self, node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
        counts = self.counts
        match event:
            case RecordAcknowledged():
                writer = int(event.record_key.partition(".")[0])
                counts.acknowledged_ns.setdefault(writer, []).append(t_ns)
                if not self._commits_count:
                    counts.acknowledged.append(event.record_key)
            case FrameSent():
                counts.requests += node.startswith("writer-") and not event.is_response
            case ProduceRefused():
                counts.refusals += event.error_code in IDENTITY_ERRORS
            case LeasedMessageRefused():
                counts.refusals += 1
            case ProducerIdReturned():
                counts.ids_used += event.fresh
            case ProducerIdBlockReceived():
                counts.ids_taken += event.next_producer_id - event.first_producer_id
            case LeaseGranted():
                counts.ids_used += event.is_new
            case LeaseIdsReserved():
                counts.ids_taken += event.next_number - event.first_number

    def _awake_ns(self) -> dict[int, list[int]]:
        """Return the acknowledgements of writers that were never paused: only for these does a gap
        mean that brokers were unavailable.
        """
        resting = {
            each.target
            for each in self._plan.mishaps
            if each.kind in (MishapKind.SLEEP, MishapKind.ZOMBIE)
        }
        return {
            writer: times
            for writer, times in self.counts.acknowledged_ns.items()
            if writer not in resting
        }

    def _outcome(self, logs: dict[int, list[str]], finished_ms: int) -> ComparisonOutcome:
        counts = self.counts
        counted = count_logs(logs, self._plan.records_each, counts.acknowledged)
        troubles = [f"{each.host}: {each.message}" for each in self._simulation.troubles] + list(
            self.side.failures
        )
        return ComparisonOutcome(
            system=self._system.name,
            seed=self._plan.seed,
            records=self._plan.writers * self._plan.records_each,
            doubled=counted.doubled,
            lost=counted.lost,
            missing=counted.missing,
            disordered=counted.disordered,
            refusals=counts.refusals,
            fenced=counts.fenced,
            requests=counts.requests
            + self.requests_before
            + sum(self.side.requests_of(instance.application) for instance in self.instances),
            ids_used=counts.ids_used,
            ids_taken=counts.ids_taken,
            silence_ms=longest_silence_ms(counts.kills_ns, self._awake_ns(), counts.ends_ns),
            finished_ms=finished_ms,
            trouble="; ".join(troubles) or None,
        )


def plan_of(seed: int) -> ComparisonPlan:
    """Draw the plan of a seed."""
    return draw_plan(seed, Random(f"comparison/{seed}"))


def run(system: System, plan: ComparisonPlan) -> ComparisonOutcome:
    """Run one plan over one design."""
    with collected_after(), Simulation(plan.seed) as simulation:
        return Run(system, plan, simulation).run()

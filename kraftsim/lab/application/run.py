"""A simulation in progress as an application's check and a simulation test see it: the cluster, the
instances, faults, records, and time.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kraftsim.clients.events import FactStated
from kraftsim.clients.events_transactions import CopyExpected, CopyRead
from kraftsim.clients.reader import ReadRecord
from kraftsim.cluster.administration import TransactionQueries
from kraftsim.cluster.scenario import LivenessLost, ProducerDriver, ScenarioFailed, within
from kraftsim.cluster.simulation import SimulatedEnvironment
from kraftsim.lab.application.host import Instance, Supervision
from kraftsim.lab.application.options import Application, Check, SimulationOptions
from kraftsim.lab.faults.fault import AtTime, Fault, Value, directions, members
from kraftsim.lab.workloads.phases import CALLS_SECONDS, under_faults

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the simulation)

PARTITIONS: Final = "partitions."
"""Prefix of the workload parameters with the number of partitions of a topic."""
INSTANCES, WORK_MS = "instances", "work_ms"
LOOK_SECONDS: Final = 0.05
STOP_SECONDS: Final = 30.0
"""How long an instance may take to end after it was cancelled, before it is killed."""
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_SECONDS: Final = 180.0
"""Clients have transaction time-outs of 60 s by default."""
READ_SECONDS: Final = 60.0
CRASHES_MAX: Final = 2
"""An instance may crash once after the faults, from what they left behind."""


def host_names(instances: int) -> tuple[str, ...]:
    """Return the names of the hosts of the first instances."""
    return tuple(f"app-{number}" for number in range(1, instances + 1))


class ApplicationRun:
    """A simulation in progress. All methods that wait do so in virtual time.

    A target is the name of a node or of a host of an application, a pattern (`broker-*`), several
    (`app-1,app-2`), or `leader`, the active controller. For links, `a<>b` is both directions, `a>b`
    one, and a host alone all its links.
    """

    def __init__(self, stage: SimulatedEnvironment, options: SimulationOptions) -> None:
        self.seed = stage.seed
        self.options = options
        self.instances: dict[str, Instance] = {}
        """The instances that were started, by host."""
        self.topics: dict[str, int] = {}
        """The topics that were created here: name -> partitions."""
        self._stage = stage
        self._simulation = stage.cluster.simulation
        self._producer: ProducerDriver | None = None
        self._readers = 0
        self._expected: list[tuple[str, str]] = []
        for name in host_names(stage.workload(INSTANCES)):  # faults may name them from the start on
            self._simulation.add_host(name, tolerant=True)

    # What it is
    # ----------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers, for hosts inside the simulation."""
        return ",".join(f"{host}:{port}" for host, port in self._stage.cluster.addresses)

    @property
    def broker_names(self) -> tuple[str, ...]:
        """The brokers."""
        return self._stage.spec.broker_names

    @property
    def controller_names(self) -> tuple[str, ...]:
        """The controllers."""
        return self._stage.spec.controller_names

    @property
    def now(self) -> float:
        """Seconds of virtual time since the run began."""
        return self._stage.now_seconds()

    def random(self, purpose: str) -> "Random":
        """Return the stream of random numbers for a purpose, keyed by the seed."""
        return self._stage.random(purpose)

    def fact(self, name: str, key: object = "", value: object = "") -> None:
        """State a fact: it becomes an event, which invariants and queries can use."""
        self._stage.emit(FactStated(application="test", name=name, key=str(key), value=str(value)))

    def topics_wanted(self) -> Mapping[str, int]:
        """Return the topics of the options, with what the run's workload parameters say."""
        asked = {
            parameter.removeprefix(PARTITIONS): count
            for parameter, count in self._stage.parameters.items()
            if parameter.startswith(PARTITIONS)
        }
        return {**self.options.topics, **asked}

    # Topics and records
    # ----------------------------------------------------------------------------------------------

    async def create_topic(
        self, name: str, *, partitions: int = 1, replicas: int | None = None
    ) -> str:
        """Create a topic, and return its name when all its replicas are in sync. `replicas`: 3, or
        as many as there are brokers.
        """
        count = min(3, self._stage.spec.brokers) if replicas is None else replicas
        await self._stage.create_topic(name, partitions, count)
        self.topics[name] = partitions
        return name

    async def produce(
        self, topic: str, records: int | Iterable[tuple[str, bytes]], *, every_seconds: float = 0.0
    ) -> list[str]:
        """Produce records with an idempotent producer of kraftsim's, partition by partition in
        turn, and return their keys once all are acknowledged. A number means so many records with
        the keys and values 0, 1, 2, ...

        Raises LivenessLost if some are not acknowledged in time.
        """
        numbered = ((str(index), str(index).encode()) for index in range(_count_of(records)))
        chosen = numbered if isinstance(records, int) else records
        if self._producer is None:
            self._producer = self._stage.producer("writer")
            await self._producer.start()
        partitions = self.topics.get(topic, 1)
        keys = []
        for index, (key, value) in enumerate(chosen):
            await self._producer.send(topic, index % partitions, key, value)
            keys.append(key)
            if every_seconds:
                await self.sleep(every_seconds)
        left = await self._producer.flush(CALLS_SECONDS)
        if left:
            raise LivenessLost(f"{left} records of {topic} were not acknowledged in time")
        return keys

    async def read(self, topic: str, *, read_committed: bool = True) -> list[ReadRecord]:
        """Return all records of a topic up to its end at this time, partition by partition."""
        self._readers += 1
        client_id = f"reader-{self._readers}"
        reader = self._stage.reader(client_id, read_committed=read_committed)
        found = await reader.read_all(topic, range(await self._partitions(topic)))
        await reader.close()
        return found

    async def committed(self, group_id: str, topic: str) -> Mapping[int, int]:
        """Return the committed offset of each partition of a topic, once no transaction is open;
        -1: none.
        """
        partitions = await self._partitions(topic)
        questions = self._questions()
        while not (found := await questions.committed(group_id, topic, partitions)):
            await self.sleep(LOOK_SECONDS)
        questions.close()
        return found

    async def transactions_end(self, *topics: str) -> None:
        """Return when no transaction is open in the topics, nor in the offsets of groups.

        Raises LivenessLost if that takes longer than the longest time-out of a transaction.
        """
        questions = self._questions()

        async def end() -> None:
            await questions.until_decided(await questions.existing([*topics, OFFSETS_TOPIC]))

        await within(self._stage, "end of transactions", end(), TRANSACTIONS_SECONDS)
        questions.close()

    def expect_copy(self, input_topic: str, output_topic: str) -> None:
        """Expect that each record of a topic becomes one committed record of another, with the same
        key. The invariant each-input-processed-once checks it at the end.
        """
        self._expected.append((input_topic, output_topic))
        self._stage.emit(CopyExpected(input_topic=input_topic, output_topic=output_topic))

    async def audit(self) -> None:
        """Stop all instances, wait until their transactions have ended, and read the topics that
        were created here, so that invariants can compare.

        Raises LivenessLost if transactions do not end, or an expected output cannot be read.
        """
        await self.stop()
        wanted = dict.fromkeys((*self.topics, *(output for _, output in self._expected)))
        if not wanted:
            return
        await self.transactions_end(*wanted)
        for topic in await self._questions().existing(list(wanted)):
            self._readers += 1
            client_id = f"auditor-{self._readers}"
            reader = self._stage.reader(client_id, read_committed=True)
            read = reader.read_all(topic, range(await self._partitions(topic)))
            await within(self._stage, f"reading {topic}", read, READ_SECONDS)
            await reader.close()
            self._stage.emit(CopyRead(client_id=client_id, topic=topic))

    # Applications
    # ----------------------------------------------------------------------------------------------

    def start(
        self,
        application: Application,
        *,
        instances: int = 1,
        name: str | None = None,
        restarts: bool = True,
    ) -> list[str]:
        """Start instances of an application, each on a host of its own, and return the hosts:
        app-1, app-2, ..., or NAME, or NAME-1, NAME-2, ...

        `restarts`: whether an instance that crashes is started again, as a supervisor does.
        """
        supervision = Supervision(
            restart_seconds=self.options.restart_seconds if restarts else None,
            bootstrap=self.bootstrap,
            seed=self.seed,
        )
        started = []
        for number in range(1, instances + 1):
            host_name = self._host_name(name, number, instances)
            host = self._simulation.hosts.get(host_name) or self._simulation.add_host(
                host_name, tolerant=True
            )
            instance = Instance(self._simulation, host, application, number, supervision)
            self.instances[host_name] = instance
            self._stage.cluster.programs[host_name] = instance
            main = instance.main(host)
            if host.is_alive and main is not None:
                self._simulation.spawn(host, main)
            elif main is not None:
                main.close()
                instance.start()
            started.append(host_name)
        return started

    def _host_name(self, name: str | None, number: int, instances: int) -> str:
        if name is not None:
            return name if instances == 1 else f"{name}-{number}"
        taken = len([each for each in self.instances if each.startswith("app-")])
        return f"app-{taken + 1}"

    async def stop(self, target: str = "*", *, timeout_seconds: float = STOP_SECONDS) -> None:
        """Stop instances for good, as SIGTERM does: each is cancelled, and killed if it takes
        longer than the timeout.
        """
        for name in self._instances(target):
            instance, host = self.instances[name], self._simulation.host(name)
            instance.is_wanted = False
            process = host.process
            ending = self._simulation.stop(host)
            if ending is not None:
                await asyncio.wait((ending,), timeout=timeout_seconds)  # noqa: TID251  (one task: no order to depend on)
            if host.process is process and host.is_alive:
                self._simulation.kill(host)

    async def returned(self, target: str = "*", *, seconds: float = 60.0) -> None:
        """Return when instances have returned by themselves. Raises LivenessLost."""
        names = self._instances(target)
        await self.until(
            lambda: all(self.instances[name].has_returned for name in names),
            seconds=seconds,
            what=f"{', '.join(names)} returned",
        )

    def _instances(self, target: str) -> list[str]:
        return members(target, list(self.instances), may_lack=target == "*")

    # Faults
    # ----------------------------------------------------------------------------------------------

    async def faults(self, seconds: float | None = None) -> None:
        """Inject the faults that the seed draws for so many seconds (as the options say), then heal
        them all; return when the cluster has settled. Raises LivenessLost if it does not.
        """
        chosen = self._stage.workload(WORK_MS) / 1000 if seconds is None else seconds
        await under_faults(self._stage, seconds=chosen)

    def fault(self, kind: str, target: str = "*", **parameters: Value) -> None:
        """Inject a fault now: a kind of `kraftsim list faults` with its parameters.

        Raises KeyError for an unknown kind or target, ValueError for an unknown parameter.
        """
        now_ms = int(self.now * 1000)
        self._stage.add_fault(
            Fault(kind=kind, target=target, trigger=AtTime(at_ms=now_ms), params=parameters)
        )

    def kill(self, target: str) -> None:
        """Kill processes of nodes or instances; they stay down until `restart` or `heal`."""
        for name in self._hosts(target):
            self._simulation.kill(name)

    async def restart(self, target: str) -> None:
        """Restart nodes or instances: those that run are stopped cleanly first."""
        for name in self._hosts(target):
            if name in self.instances:
                await self._restart_instance(name)
            else:
                await self._stage.restart(name)

    def pause(self, target: str, *, seconds: float) -> None:
        """Pause processes for a while, as SIGSTOP and SIGCONT do, or a long garbage collection."""
        for name in self._hosts(target):
            self.fault("pause", name, duration_ms=int(seconds * 1000))

    def cut(self, target: str, *, seconds: float) -> None:
        """Interrupt links for a while: bytes wait, connections stay open."""
        directions(target, self._all_hosts())
        self.fault("partition", target, duration_ms=int(seconds * 1000))

    async def heal(self) -> None:
        """End all faults, and start what is down."""
        await self._stage.heal()

    async def _restart_instance(self, name: str) -> None:
        host, instance = self._simulation.host(name), self.instances[name]
        process = host.process
        ending = self._simulation.stop(host)
        if ending is not None:
            await asyncio.wait((ending,), timeout=STOP_SECONDS)  # noqa: TID251  (one task: no order to depend on)
        if host.process is process and host.is_alive:
            self._simulation.kill(host)
        instance.start()

    def _hosts(self, target: str) -> list[str]:
        leader = self._stage.cluster.leader
        if target == "leader" and leader is not None:
            return [leader]
        return members(target, self._all_hosts())

    def _all_hosts(self) -> list[str]:
        return [*self._stage.spec.node_names, *self.instances]

    # Time
    # ----------------------------------------------------------------------------------------------

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await self._stage.sleep(seconds)

    async def until(
        self,
        condition: Callable[[], object],
        *,
        seconds: float = 60.0,
        what: str = "the condition",
    ) -> None:
        """Return when a condition holds; it may be a coroutine function.

        Raises LivenessLost after so many seconds.
        """
        ends_at = self.now + seconds
        while True:
            found = condition()
            if inspect.isawaitable(found):
                awaitable: Awaitable[object] = found
                found = await awaitable
            if found:
                return
            if self.now >= ends_at:
                crashes = [line for each in self.instances.values() for line in each.crashes[-1:]]
                last = f"; the last crash: {crashes[-1]}" if crashes else ""
                raise LivenessLost(f"{what}: not reached within {seconds:g} s{last}")
            await self.sleep(LOOK_SECONDS)

    async def _partitions(self, topic: str) -> int:
        if topic in self.topics:
            return self.topics[topic]
        questions = self._questions()
        async with asyncio.timeout(STOP_SECONDS):
            while not (ends := await questions.ends(topic)):
                await self.sleep(LOOK_SECONDS)
        questions.close()
        self.topics[topic] = len(ends)
        return len(ends)

    def _questions(self) -> TransactionQueries:
        return self._stage.questions("test")


def _count_of(records: object) -> int:
    return records if isinstance(records, int) else 0


async def run_standard(
    run: ApplicationRun, application: Application, check: Check | None, instances: int
) -> None:
    """Run an application in the standard way: its topics, its instances, faults, an end, its check.

    Raises ScenarioFailed if an instance goes on crashing without a fault.
    """
    for topic, partitions in run.topics_wanted().items():
        await run.create_topic(topic, partitions=partitions)
    run.start(application, instances=instances)
    await run.faults()
    crashes = {name: len(instance.crashes) for name, instance in run.instances.items()}
    try:
        await run.returned(seconds=run.options.settle_seconds)
    except LivenessLost:
        await run.stop()
    for name, instance in run.instances.items():
        if len(instance.crashes) - crashes[name] >= CRASHES_MAX:
            raise ScenarioFailed(
                f"{name} crashed {len(instance.crashes) - crashes[name]} times after all faults "
                f"were healed: {instance.crashes[-1]}"
            )
    if check is not None:
        await check(run)

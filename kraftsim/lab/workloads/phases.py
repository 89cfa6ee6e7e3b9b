"""The two phases of every run: faults are injected while the workload runs, then all faults are
healed and the cluster must settle within bounds.

A system that is safe because it does nothing would pass without the second one. An event records
the time for each bound, and the invariant recovers-after-heal checks it: there is a leader, all
brokers are ready, all controllers have caught up, all replicas are in sync (where there are
several), and every client call has returned.
Source: TigerBeetle's liveness mode; the bounds are far above what Kafka's time-outs add up to.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kraftsim.clients.rules_producer_steps import ProducerSettings
from kraftsim.cluster.scenario import LivenessLost, ScenarioEnvironment
from kraftsim.events.runs import PhaseBegan, Settled
from kraftsim.lab.workloads.partition_administrator import PartitionAdministrator

LEADER_SECONDS = 10.0
CONTROLLER_SECONDS = 30.0
"""In ZooKeeper mode: the session of the former controller must expire first, and so must that of a
broker's former incarnation.
"""
BROKERS_SECONDS = 30.0
SUPERVISOR_SECONDS = 1.0
"""How long a supervisor waits before it restarts a failed node."""
CONTROLLERS_SECONDS = 30.0
CALLS_SECONDS = 2 * ProducerSettings().delivery_timeout_ms / 1000
"""A call is retried for one delivery time-out; one that began just before the faults ended gets as
much again.
"""
REPLICAS_SECONDS = 60.0
"""A follower retries without a limit; replica.lag.time.max.ms and the log end offset determine when
it is in sync.
"""
TRANSACTIONS_SECONDS = 60.0
"""The longest transaction time-out of any scenario, the interval of the check for timed-out
transactions, and markers in flight, times several.
"""
COMPLETED_SECONDS = 1.0
"""Markers end a transaction in its partitions; then its coordinator writes that it is complete."""
FAULTS, LIVENESS = "faults", "liveness"


async def under_faults(
    stage: ScenarioEnvironment, *work: Awaitable[object], seconds: float
) -> None:
    """Run the workload while faults are injected, for so many seconds; then heal all faults, and
    return when cluster and workload have settled.

    Raises what the work raises, and LivenessLost if a bound is exceeded.
    """
    finished = asyncio.Event()
    stage.emit(PhaseBegan(phase=FAULTS))
    stage.inject()
    await stage.gather(_heal(stage, seconds, finished), _work(stage, work, finished))


async def elect_now_and_then(
    stage: ScenarioEnvironment, *, seconds: float, every_seconds: float
) -> None:
    """For so many seconds, elect preferred leaders from time to time: former leaders lead again."""
    administrator = PartitionAdministrator(stage.client_host("elector"))
    ends_at = stage.now_seconds() + seconds
    while stage.now_seconds() < ends_at:
        await stage.sleep(every_seconds)
        await administrator.elect_preferred_leaders()
    administrator.close()


async def replicas_settle(stage: ScenarioEnvironment, topic: str, partitions: int) -> None:
    """Return when all replicas of a topic are in sync, after `under_faults`.

    Raises LivenessLost if that takes too long.
    """
    await _settle(
        stage,
        "replicas",
        stage.wait_for_replicas(topic, partitions),
        REPLICAS_SECONDS,
        stage.now_seconds(),
    )


async def transactions_settle(
    stage: ScenarioEnvironment,
    topics: Sequence[str],
    *,
    limit_seconds: float = TRANSACTIONS_SECONDS,
) -> None:
    """Return when no transaction is open in any partition of the topics, after `under_faults`, and
    coordinators have had the time to write so.

    Raises LivenessLost if that takes longer than the limit.
    """
    questions = stage.questions("settling")
    await _settle(
        stage,
        "transactions",
        questions.until_decided(topics),
        limit_seconds,
        stage.now_seconds(),
    )
    questions.close()
    await stage.sleep(COMPLETED_SECONDS)


async def _work(
    stage: ScenarioEnvironment, work: tuple[Awaitable[object], ...], finished: asyncio.Event
) -> None:
    await stage.gather(*work)
    finished.set()


async def _heal(stage: ScenarioEnvironment, seconds: float, finished: asyncio.Event) -> None:
    await stage.sleep(seconds)
    stage.emit(PhaseBegan(phase=LIVENESS))
    await stage.heal()
    began = stage.now_seconds()
    await _settle(
        stage,
        "leader",
        stage.wait_for_leader(),
        LEADER_SECONDS if stage.spec.controllers else CONTROLLER_SECONDS,
        began,
    )
    await _settle(stage, "brokers", all_serve(stage), BROKERS_SECONDS, began)
    await _settle(stage, "controllers", stage.wait_for_controllers(), CONTROLLERS_SECONDS, began)
    await _settle(stage, "calls", finished.wait(), CALLS_SECONDS, began)


async def all_serve(
    stage: ScenarioEnvironment, *, may_restart: Callable[[], bool] = lambda: True
) -> None:
    """Return when all brokers are ready.

    A broker that cannot register exits, as Kafka's do: at once in ZooKeeper, and with controllers
    after initial.broker.registration.timeout.ms, which may be just after the faults ended. Restart
    it, as a supervisor does, while it may (while faults last a node may be down because of one).
    """
    async with asyncio.TaskGroup() as group:
        supervisor = group.create_task(_start_again(stage, stage.spec.broker_names, may_restart))
        await stage.wait_for_brokers()
        supervisor.cancel()


async def _start_again(
    stage: ScenarioEnvironment, names: Sequence[str], may_restart: Callable[[], bool]
) -> None:
    while names:
        for name in names:
            if may_restart() and stage.is_down(name):
                await stage.restart(name)
        await stage.sleep(SUPERVISOR_SECONDS)


async def _settle(
    stage: ScenarioEnvironment,
    what: str,
    wait: Awaitable[object],
    limit_seconds: float,
    began: float,
) -> None:
    """Wait, and emit how long it took since all faults were healed.

    Raises LivenessLost after the limit, times the patience of the environment.
    """
    limit_seconds *= stage.patience
    limit_ms = int(limit_seconds * 1000)
    try:
        async with asyncio.timeout(max(0.0, began + limit_seconds - stage.now_seconds())):
            await wait
    except TimeoutError as late:
        stage.emit(
            Settled(
                what=what,
                after_ms=int((stage.now_seconds() - began) * 1000),
                limit_ms=limit_ms,
                is_settled=False,
            )
        )
        raise LivenessLost(
            f"{what}: not settled {limit_seconds:g} s after the last fault was healed"
        ) from late
    stage.emit(
        Settled(
            what=what,
            after_ms=int((stage.now_seconds() - began) * 1000),
            limit_ms=limit_ms,
            is_settled=True,
        )
    )

"""The two phases of every run: first faults strike while the scenario's work goes on, then all is mended and must settle within bounds.

A system that is safe because it does nothing would pass without the second one. Each bound is noted with its figure, and the invariant
settles-after-heal judges it: whether a leader is there, all brokers serve, all controllers have caught up, all replicas are in sync (where there are
several), and every call of a client came back.
Source: TigerBeetle's liveness mode; the bounds are far above what Kafka's time-outs add up to.
"""

import asyncio
from collections.abc import Awaitable, Sequence

from kraftsim.cluster.scenario import LivenessLost, Stage
from kraftsim.core.clients.producer_steps import ProducerSettings
from kraftsim.events.runs import PhaseBegan, Settled

LEADER_SECONDS = 10.0
CONTROLLER_SECONDS = 30.0
"""Before KRaft: the session of who was controller must be over first, and so must that of a broker's former life."""
BROKERS_SECONDS = 30.0
SUPERVISOR_SECONDS = 1.0
"""How long a supervisor waits before it starts again what gave up."""
CONTROLLERS_SECONDS = 30.0
CALLS_SECONDS = 2 * ProducerSettings().delivery_timeout_ms / 1000
"""A call is tried for one delivery time-out; what began just before the faults ended gets as much again."""
REPLICAS_SECONDS = 60.0
"""A follower waits and tries again for as long as it takes; replica.lag.time.max.ms and the log's end say when it is in sync."""
TRANSACTIONS_SECONDS = 60.0
"""The longest time-out of a transaction in any story, the broker's look-out for it, and markers on their way, several times over."""
FAULTS, LIVENESS = "faults", "liveness"


async def under_faults(stage: Stage, *work: Awaitable[object], seconds: float) -> None:
    """Do the work while faults strike, for so many seconds; then mend everything, and return when all is settled and the work is done.

    Raises what the work raises, and LivenessLost if a bound is not kept.
    """
    finished = asyncio.Event()
    stage.note(PhaseBegan(phase=FAULTS))
    stage.inject()
    await stage.gather(_heal(stage, seconds, finished), _work(stage, work, finished))


async def elect_now_and_then(stage: Stage, *, seconds: float, every_seconds: float) -> None:
    """For so many seconds, let preferred replicas lead again from time to time: whoever has led before does so again."""
    ends_at = stage.now_seconds() + seconds
    while stage.now_seconds() < ends_at:
        await stage.sleep(every_seconds)
        await stage.elect_preferred_leaders()


async def replicas_settle(stage: Stage, topic: str, partitions: int) -> None:
    """Return when all replicas of a topic are in sync, after `under_faults`. Raises LivenessLost if that takes too long."""
    await _settle(stage, "replicas", stage.wait_for_replicas(topic, partitions), REPLICAS_SECONDS, stage.now_seconds())


async def transactions_settle(stage: Stage, topics: Sequence[str]) -> None:
    """Return when no transaction is open in any partition of the topics, after `under_faults`. Raises LivenessLost if that takes too long."""
    questions = stage.questions("settling")
    await _settle(stage, "transactions", questions.until_decided(topics), TRANSACTIONS_SECONDS, stage.now_seconds())
    questions.close()


async def _work(stage: Stage, work: tuple[Awaitable[object], ...], finished: asyncio.Event) -> None:
    await stage.gather(*work)
    finished.set()


async def _heal(stage: Stage, seconds: float, finished: asyncio.Event) -> None:
    await stage.sleep(seconds)
    stage.note(PhaseBegan(phase=LIVENESS))
    await stage.mend()
    began = stage.now_seconds()
    await _settle(stage, "leader", stage.wait_for_leader(), LEADER_SECONDS if stage.spec.controllers else CONTROLLER_SECONDS, began)
    await _settle(stage, "brokers", _all_serve(stage), BROKERS_SECONDS, began)
    await _settle(stage, "controllers", stage.wait_for_controllers(), CONTROLLERS_SECONDS, began)
    await _settle(stage, "calls", finished.wait(), CALLS_SECONDS, began)


async def _all_serve(stage: Stage) -> None:
    """Return when all brokers serve. Whom ZooKeeper did not let in among the faults gives up, as Kafka's do: start it again, as supervisors do."""
    async with asyncio.TaskGroup() as group:
        supervisor = group.create_task(_start_again(stage, stage.spec.broker_names if stage.spec.zookeeper_names else ()))
        await stage.wait_for_brokers()
        supervisor.cancel()


async def _start_again(stage: Stage, names: Sequence[str]) -> None:
    while names:
        for name in names:
            if stage.is_down(name):
                await stage.restart(name)
        await stage.sleep(SUPERVISOR_SECONDS)


async def _settle(stage: Stage, what: str, wait: Awaitable[object], limit_seconds: float, began: float) -> None:
    """Wait, and note how long it took since everything was mended. Raises LivenessLost after the limit."""
    limit_ms = int(limit_seconds * 1000)
    try:
        async with asyncio.timeout(max(0.0, began + limit_seconds - stage.now_seconds())):
            await wait
    except TimeoutError as late:
        stage.note(Settled(what=what, after_ms=int((stage.now_seconds() - began) * 1000), limit_ms=limit_ms, is_settled=False))
        raise LivenessLost(f"{what}: not settled {limit_seconds:g} s after the last fault was healed") from late
    stage.note(Settled(what=what, after_ms=int((stage.now_seconds() - began) * 1000), limit_ms=limit_ms, is_settled=True))

"""Faults of requests on a real cluster: inside the nodes of an embedded one, in the proxy of a
cluster of processes; each is an event, and so is each request that it takes effect on.
"""

import asyncio
from collections.abc import Callable

from kraftsim.cluster.cluster_fault_driver import ClusterFaultDriver
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.events.event import Event
from kraftsim.events.runs import FaultEnded, FaultInjected, FaultTookEffect
from kraftsim.lab.faults.rules_request_faults import (
    RequestFault,
    RequestFaultStatus,
    RequestHit,
)
from kraftsim.world.real.event_file import next_incarnation
from kraftsim.world.real.world import RealWorld, real_world

HARNESS = "harness"
"""The name under which a test's own events are in the event log."""
ANYWHERE = "*"
OnHit = Callable[[RequestHit], None]


def _nothing(hit: RequestHit) -> None:
    """The event log and the status have each effect."""


class RequestFaults:
    """The faults of requests of one cluster; it belongs to one event loop. `trigger` says in events
    who injects them.
    """

    def __init__(
        self,
        cluster: EmbeddedCluster | ProcessCluster,
        driver: ClusterFaultDriver,
        directory: RunDirectory,
        *,
        trigger: str = "the test",
    ) -> None:
        self._cluster = cluster
        self._driver = driver
        self._directory = directory
        self._trigger = trigger
        self._running: dict[int, RequestFault] = {}
        self._world: RealWorld | None = None

    async def inject(self, fault: RequestFault, on_hit: OnHit = _nothing) -> int:
        """Add a fault, and return its number; `on_hit` is called for each request that it takes
        effect on, on any thread.

        Raises NoProxy in a cluster of processes without one.
        """
        if isinstance(self._cluster, ProcessCluster):
            await self._driver.door()  # or there is none
        target = fault.node or ANYWHERE
        self._emit(FaultInjected(fault=str(fault), target=target, trigger=self._trigger))

        loop = asyncio.get_running_loop()

        def emit(hit: RequestHit) -> None:
            self._emit(FaultTookEffect(fault=str(fault), target=hit.node, effect=str(hit)))

        def report(hit: RequestHit) -> None:
            on_hit(hit)
            if not loop.is_closed():  # as by a cluster that is being stopped
                loop.call_soon_threadsafe(emit, hit)

        number = await self._driver.begin_request_fault(fault, report)
        self._running[number] = fault
        return number

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of all that were injected and not ended, also if they are used up."""
        return tuple(self._running)

    async def end(self, number: int) -> bool:
        """End a fault; one that is over stays so. Return whether there was one to end."""
        fault = self._running.pop(number, None)
        if fault is None:
            return False
        await self._driver.end_request_fault(number)
        self._emit(FaultEnded(fault=str(fault), target=fault.node or ANYWHERE))
        return True

    async def status(self) -> tuple[RequestFaultStatus, ...]:
        """Return all faults, those that are over as well, and what became of them.

        Raises NoProxy in a cluster of processes without one.
        """
        return await self._driver.request_faults()

    async def status_of(self, number: int) -> RequestFaultStatus | None:
        """Return what became of one; None if there is none, or it was over long ago."""
        return next((each for each in await self.status() if each.number == number), None)

    async def active(self) -> tuple[RequestFaultStatus, ...]:
        """Return those that are not over."""
        return tuple(each for each in await self.status() if not each.is_over)

    async def settle(self) -> None:
        """Return when all effects so far were reported."""
        await self._driver.settle_request_faults()

    async def heal(self) -> None:
        """End all of them."""
        for number in tuple(self._running):
            await self.end(number)

    def close(self) -> None:
        """Close the event log."""
        if self._world is not None:
            self._world.close()
            self._world = None

    def _emit(self, event: Event) -> None:
        if self._world is None:
            events = self._directory.events
            self._world = real_world(
                run=self._cluster.spec.run,
                node=HARNESS,
                incarnation=next_incarnation(events, HARNESS),
                data_dir=self._directory.data(HARNESS),
                events_dir=events,
                seed=None,
                started_ns=self._cluster.started_ns,
            )
        self._world.emit(event)
        self._world.flush_events()

"""Faults of requests on a real cluster: inside the nodes of an embedded one, in the proxy of a
cluster of processes; each is an event, and so is each request that it takes effect on.
"""

import asyncio
from collections.abc import Callable

from msgspec import structs

from kraftsim.cluster.administration import topic_id_of
from kraftsim.cluster.cluster_fault_driver import ClusterFaultDriver
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.readiness import BrokerListener
from kraftsim.events.event import Event
from kraftsim.events.runs import FaultEnded, FaultInjected, FaultTookEffect
from kraftsim.lab.faults.rules_request_faults import RequestFault, RequestHit
from kraftsim.world.real.event_file import next_incarnation
from kraftsim.world.real.world import RealWorld, real_world

HARNESS = "harness"
"""The name under which a test's own events are in the event log."""
ANYWHERE = "*"
TRIGGER = "the test"
NO_FAULT = 0
OnHit = Callable[[RequestHit], None]


class RequestFaults:
    """The faults of requests of one cluster; it belongs to one event loop."""

    def __init__(
        self,
        cluster: EmbeddedCluster | ProcessCluster,
        driver: ClusterFaultDriver,
        directory: RunDirectory,
    ) -> None:
        self._cluster = cluster
        self._driver = driver
        self._directory = directory
        self._running: dict[int, RequestFault] = {}
        self._world: RealWorld | None = None

    async def inject(
        self, fault: RequestFault, on_hit: OnHit, broker: BrokerListener | None
    ) -> int:
        """Add a fault, and return its number; `on_hit` is called for each request that it takes
        effect on, on any thread. `broker` is asked for the id of its topic.

        Raises NoProxy in a cluster of processes without one.
        """
        if isinstance(self._cluster, ProcessCluster):
            await self._driver.door()  # or there is none
        if fault.topic is not None and broker is not None:
            topic_id = await topic_id_of(
                broker.host, broker.port, fault.topic, security=broker.security
            )
            if topic_id is not None:
                fault = structs.replace(fault, topic_id=topic_id.hex())
        self._emit(FaultInjected(fault=str(fault), target=fault.node or ANYWHERE, trigger=TRIGGER))

        loop = asyncio.get_running_loop()

        def emit(hit: RequestHit) -> None:
            self._emit(FaultTookEffect(fault=str(fault), target=hit.node, effect=str(hit)))

        def report(hit: RequestHit) -> None:
            on_hit(hit)
            if not loop.is_closed():  # as by a cluster that is being stopped
                loop.call_soon_threadsafe(emit, hit)

        if isinstance(self._cluster, EmbeddedCluster):
            number = await self._cluster.add_request_fault(fault, report)
        else:
            number = await (await self._driver.door()).inject(fault, report)
        self._running[number] = fault
        return number

    async def end(self, number: int) -> None:
        """End a fault; one that is over stays so."""
        fault = self._running.pop(number, None)
        if fault is None:
            return
        if isinstance(self._cluster, EmbeddedCluster):
            await self._cluster.end_request_fault(number)
        else:
            await (await self._driver.door()).end_fault(number)
        self._emit(FaultEnded(fault=str(fault), target=fault.node or ANYWHERE))

    async def settle(self) -> None:
        """Return when all effects so far were reported: a node reports before it goes on, the proxy
        through a socket.
        """
        if not isinstance(self._cluster, EmbeddedCluster):
            await (await self._driver.door()).end_fault(NO_FAULT)

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

"""All faults of one run over sockets: each waits for its time or its frame, is injected, and ends
at the latest when all faults are healed.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from kraftsim.cluster.cluster_fault_driver import ClusterFaultDriver, RealCluster
from kraftsim.cluster.proxy.control import Held
from kraftsim.events.event import Event
from kraftsim.events.runs import FaultArmed, FaultEnded, FaultInjected
from kraftsim.lab.faults.fault import AT_THE_TRIGGER, FAULTS, Aim, Family, Fault, FaultKind
from kraftsim.lab.faults.field import SocketInjection, Watch
from kraftsim.lab.faults.trigger import AtTime, OnFrame
from kraftsim.world.random_streams import stream

BETWEEN_NODES: Final = (Family.NETWORK, Family.PROTOCOL)


def can_inject(fault: Fault, mode: str) -> bool:
    """Return whether a fault can be injected over sockets: its kind supports the mode, and its
    trigger is a time or a frame.
    """
    kind = FAULTS.named(fault.kind)
    return (
        mode in kind.modes
        and kind.over_sockets is not None
        and isinstance(fault.trigger, AtTime | OnFrame)
    )


def wants_proxy(faults: Iterable[Fault]) -> bool:
    """Return whether a fault needs the proxy between the nodes."""
    kinds = [FAULTS.named(fault.kind) for fault in faults]
    return any(
        kind.family in BETWEEN_NODES or kind.through_proxy for kind in kinds
    ) or follows_frames(faults)


def follows_frames(faults: Iterable[Fault]) -> bool:
    """Return whether a fault waits for a frame, or is about one."""
    return any(
        isinstance(fault.trigger, OnFrame) or FAULTS.named(fault.kind).family is Family.PROTOCOL
        for fault in faults
    )


class FieldSchedule:
    """The faults that can be injected. Times count from `inject`."""

    def __init__(
        self, cluster: RealCluster, faults: Sequence[Fault], emit: Callable[[Event], None]
    ) -> None:
        self.faults = tuple(faults)
        self.field = ClusterFaultDriver(cluster)
        self._seed = cluster.spec.seed
        self._emit = emit
        self._strikes: list[SocketInjection] = []
        self._waiting: dict[SocketInjection, asyncio.Task[None]] = {}
        self._under_way: dict[SocketInjection, asyncio.Task[None]] = {}

    def inject(self) -> None:
        """Arm every fault: it waits for its trigger."""
        for fault in self.faults:
            kind = FAULTS.named(fault.kind)
            self._emit(
                FaultArmed(fault=fault.kind, target=fault.target, trigger=str(fault.trigger))
            )
            numbers = stream(
                self._seed, "fault", 1, msgspec.json.encode(fault, order="sorted").decode()
            )
            injection = SocketInjection(
                fault, kind.params, self.field, random=numbers, emit=self._emit
            )
            self._waiting[injection] = asyncio.ensure_future(self._carry_out(injection, kind))

    async def finished(self) -> None:
        """Return when every fault has been injected and is over.

        Raises the exception of a fault that failed.
        """
        await asyncio.gather(*self._waiting.values(), *self._under_way.values())

    async def heal(self) -> None:
        """Inject no more faults, end those that last, and restart nodes that are down.

        Raises the exception of a fault that failed.
        """
        for task in self._waiting.values():
            task.cancel()
        for injection in self._under_way:
            injection.end()
        done = await asyncio.gather(
            *self._waiting.values(), *self._under_way.values(), return_exceptions=True
        )
        await self.field.heal()
        for result in done:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    async def close(self) -> None:
        """Stop waiting, without healing anything."""
        tasks = (*self._waiting.values(), *self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.field.close()

    async def _carry_out(self, injection: SocketInjection, kind: FaultKind) -> None:
        held = await self._triggered(injection, kind)
        self._under_way[injection] = self._waiting.pop(injection)
        fault = injection.fault
        try:
            await injection.understand(is_one_host=kind.aim is Aim.HOST)
            self._emit(
                FaultInjected(fault=fault.kind, target=injection.target, trigger=str(fault.trigger))
            )
            assert kind.over_sockets is not None, (
                "faults that cannot be injected here were left out"
            )
            await kind.over_sockets(injection)
            self._emit(FaultEnded(fault=fault.kind, target=injection.target))
        finally:
            if held is not None:
                await held.let_pass()

    async def _triggered(self, injection: SocketInjection, kind: FaultKind) -> Held | None:
        """Wait for the time, or for the frame, which is held then."""
        trigger = injection.fault.trigger
        if isinstance(trigger, AtTime):
            await asyncio.sleep(trigger.at_ms / 1000)
            return None
        assert isinstance(trigger, OnFrame), "other triggers cannot be waited for over sockets"
        watch = Watch(
            api_key=trigger.api_key,
            is_response=trigger.is_response,
            client=trigger.client,
            server=trigger.server,
            nth=trigger.nth,
            moment=trigger.moment,
            sent_by_node=kind.family is Family.PROCESS
            and injection.fault.target == AT_THE_TRIGGER,  # clients have no process of ours
        )
        held = await self.field.next_frame(watch)
        injection.frame, injection.host = held, held.sender
        return held

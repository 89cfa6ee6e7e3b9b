"""A rolling bounce of an application: its members restart one by one with other settings while they
copy records.

Source: KIP-447, Kafka Streams' upgrade guide (exactly_once to exactly_once_v2).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

from kraftsim.cluster.scenario import ScenarioEnvironment
from kraftsim.lab.workloads.transform_app import (
    Mishaps,
    Point,
    TransformSettings,
    TransformWorker,
    Variant,
)
from kraftsim.lab.workloads.upgrading import ContinuousTransformApp

LOOK_SECONDS = 0.05


class BounceKind(IntEnum):
    """What a member runs as, in the order of the upgrade."""

    OLD = 0
    """A transactional id per input partition; offset commits carry no member metadata, and offset
    fetches do not require stable offsets.
    """
    AWARE = 1
    """The same ids, but offset commits carry the member metadata, and a new owner waits for stable
    offsets.
    """
    PER_THREAD = 2
    """One transactional id per thread: from here on the group coordinator does the fencing."""


@dataclass(kw_only=True, slots=True)
class RollingBounceApp(ContinuousTransformApp):
    """The input is written until `is_over`, so that no bounce comes too late.

    `kinds` maps the number of each member to its present kind.
    """

    kinds: dict[int, BounceKind] = field(default_factory=dict)
    _wanted: dict[int, BounceKind] = field(default_factory=dict)

    async def copy(
        self, stage: ScenarioEnvironment, number: int, *, until: Callable[[], bool] = lambda: True
    ) -> None:
        """Run one member, first as the old kind and then as each kind that is requested, until
        everything is copied.
        """
        while not self._is_done:
            kind = self._wanted.setdefault(number, BounceKind.OLD)
            client_host = stage.client_host(
                self._called(
                    f"copier-{number}"
                    if kind is BounceKind.OLD
                    else f"copier-{number}-{kind.name.lower()}"
                )
            )
            mishaps = Mishaps(random=stage.random(f"copier-{number}"), are_over=until)
            transform_worker = TransformWorker(
                client_host,
                self.settings_of(kind),
                mishaps=mishaps,
                is_done=self._is_over(number, kind),
            )
            self.transform_workers[number], self.kinds[number] = transform_worker, kind
            await client_host.run(transform_worker.live())

    async def bounce(
        self, stage: ScenarioEnvironment, numbers: Sequence[int], kind: BounceKind
    ) -> None:
        """Restart members as another kind, one after the other; each has restarted before the next
        one is stopped.
        """
        for number in numbers:
            self._wanted[number] = kind
            while self.kinds.get(number) is not kind and not self._is_done:
                await stage.sleep(LOOK_SECONDS)

    async def pause_member(
        self, stage: ScenarioEnvironment, number: int, point: Point, seconds: float
    ) -> None:
        """Pause a member at a point of its next transaction; return when it is paused."""
        while number not in self.transform_workers:
            await stage.sleep(LOOK_SECONDS)
        transform_worker, reached = self.transform_workers[number], False

        def look(passed: Point, member: TransformWorker) -> None:
            nonlocal reached
            reached = reached or passed is point

        transform_worker.on_point = look
        transform_worker.pause_at(point, seconds)
        while not reached and not self._is_done:
            await stage.sleep(LOOK_SECONDS)

    def settings_of(self, kind: BounceKind) -> TransformSettings:
        """Return the settings of a member of a kind."""
        variant = Variant.PER_THREAD if kind is BounceKind.PER_THREAD else Variant.PER_TASK
        return replace(self.settings(is_old=kind is BounceKind.OLD), variant=variant)

    def _is_over(self, number: int, kind: BounceKind) -> Callable[[], bool]:
        return lambda: self._is_done or self._wanted[number] is not kind

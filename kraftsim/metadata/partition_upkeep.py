"""Automatic elections: preferred leader rebalancing, and unclean elections of leaderless partitions
where the topic allows them.

Each kind is delayed for an interval after it is first needed, so that restarting brokers have time
to rejoin;
if one round is not complete, the next follows immediately.   Source:
QuorumController.{maybeScheduleNextBalancePartitionLeaders, maybeScheduleNextElectUncleanLeaders}.
"""

import asyncio
from collections.abc import Callable

from kraftsim.core.decision import Decision
from kraftsim.metadata.deciding_controller import LogController
from kraftsim.world.interface import YieldPoint

AT_ONCE_MS = 10
"""Other tasks run between two rounds."""


class _Elections:
    """One kind of election, and the time of its next round."""

    def __init__(
        self, is_needed: Callable[[], bool], decide: Callable[[], Decision[bool]], interval_ms: int
    ) -> None:
        self.due_ms: int | None = None
        self._is_needed = is_needed
        self._decide = decide
        self._interval_ms = interval_ms

    def look(self, now_ms: int) -> None:
        """Schedule a round if one is needed."""
        if self.due_ms is None and self._is_needed():
            self.due_ms = now_ms + self._interval_ms

    def hold(self, controller: LogController, now_ms: int) -> None:
        """Run a round if it is due."""
        if self.due_ms is None or now_ms < self.due_ms:
            return
        decision = self._decide()
        controller.metadata_writer.write(decision.records, decision.facts, is_atomic=False)
        self.due_ms = now_ms + AT_ONCE_MS if decision.result else None


async def elect_leaders(controller: LogController) -> None:
    """After every write check whether an election is needed, and run it when due.

    Needs an active controller.
    """
    replication, config = controller.metadata_writer.state.replication, controller.config
    topics = replication.topics
    kinds = [
        _Elections(
            lambda: topics.has_leaderless,
            replication.decide_unclean_elections,
            config.unclean_leader_election_interval_ms,
        )
    ]
    if config.auto_leader_rebalance_enable:
        interval_ms = config.leader_imbalance_check_interval_seconds * 1000
        kinds.append(
            _Elections(lambda: topics.has_imbalanced, replication.decide_balance, interval_ms)
        )
    while controller.is_active:
        controller.metadata_writer.has_written.clear()
        now_ms = controller.now_ms()
        for elections in kinds if not controller.metadata_writer.state.is_before_migration else ():
            elections.hold(controller, now_ms)
            elections.look(now_ms)
        due_ms = min(
            (elections.due_ms for elections in kinds if elections.due_ms is not None), default=None
        )
        await _written_or(controller, None if due_ms is None else max(due_ms - now_ms, 0) / 1000)
        await controller.world.yield_point(YieldPoint.RECORDS_COMMITTED)


async def _written_or(controller: LogController, pause_s: float | None) -> None:
    """Wait for the next write, but at most for a pause, if there is one."""
    if pause_s is None:
        await controller.metadata_writer.has_written.wait()
        return
    try:
        async with asyncio.timeout(pause_s):
            await controller.metadata_writer.has_written.wait()
    except TimeoutError:
        return

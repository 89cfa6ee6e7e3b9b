"""Leaders below inter.broker.protocol.version 2.7-IV2 write the ISR to ZooKeeper themselves: the
effects of an expired session.
"""

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

from kraftsim.partitions.hosted_partition import HostedPartition
from kraftsim.partitions.rules_leader import After, IsrProposal
from kraftsim.partitions.rules_replica import AgreedIsr
from kraftsim.server.controller_channel import ControllerChannel
from kraftsim.server.shell import NodeShell
from kraftsim.zookeeper.client import ZookeeperRefused
from kraftsim.zookeeper.isr_znodes import IsrZnodes
from kraftsim.zookeeper.session import ZookeeperSession
from protocol.errors import ErrorCode
from protocol.zookeeper.op_codes import ZookeeperError

AGREED = AgreedIsr(leader_epoch=5, partition_epoch=8, isr=(1, 2))


class Endings:
    """A session that expires so many times before a znode is set."""

    def __init__(self, times: int, error: ZookeeperError) -> None:
        self.times = times
        self.error = error
        self.renewals = 0

    async def until_connected(self, work: Callable[[object], Awaitable[object]]) -> object:
        self.times -= 1
        if self.times >= 0:
            raise ZookeeperRefused(self.error)
        return SimpleNamespace(version=8)

    async def until_there_is_one(self) -> None:
        self.renewals += 1


async def written(session: Endings) -> list[AgreedIsr | ErrorCode]:
    """Write an ISR, and return the result that the partition received."""
    results: list[AgreedIsr | ErrorCode] = []

    def on_answer(proposal: IsrProposal, outcome: AgreedIsr | ErrorCode, wall_ms: int) -> After:
        results.append(outcome)
        if isinstance(outcome, AgreedIsr):
            return After.CHANGED
        return After.NOTHING if outcome is ErrorCode.INVALID_UPDATE_VERSION else After.RETRY

    tasks = SimpleNamespace(spawn=lambda work, name: work.close())
    world = SimpleNamespace(clock=SimpleNamespace(wall_ms=lambda: 0), emit=lambda event: None)
    shell = cast(
        NodeShell, SimpleNamespace(config=SimpleNamespace(node_id=1), tasks=tasks, world=world)
    )
    channel = cast(ControllerChannel, None)  # an expired session is reported to no controller
    changes = IsrZnodes(
        shell, channel, cast(ZookeeperSession, session), lambda: 1, lambda key: None
    )
    hosted = cast(
        HostedPartition,
        SimpleNamespace(topic="t", partition=0, replica=SimpleNamespace(on_isr_answer=on_answer)),
    )
    await changes._write(hosted, IsrProposal((1, 2), (), 5, 7))
    return results


async def test_isr_update_is_retried_in_the_next_zookeeper_session() -> None:
    """Otherwise the leader would keep its pending ISR change and never propose another."""
    session = Endings(2, ZookeeperError.SESSION_EXPIRED)
    assert await written(session) == [
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        AGREED,
    ]
    assert session.renewals == 2


async def test_deleted_topic_is_requested_once() -> None:
    assert await written(Endings(1, ZookeeperError.NO_NODE)) == [ErrorCode.INVALID_UPDATE_VERSION]

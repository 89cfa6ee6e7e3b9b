"""An operator changes the voters of a quorum from outside, one at a time, and sees who votes."""

import asyncio

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.cluster.voters import change_voter, voters_of

SECONDS = 30.0
RETRY_SECONDS = 0.05


async def until_told(spec: ClusterSpec, name: str, *, joins: bool) -> None:
    """Ask until the answer is that it is so: a newcomer has to catch up first."""
    async with asyncio.timeout(SECONDS):
        while not await change_voter(spec, name, joins=joins):
            await asyncio.sleep(RETRY_SECONDS)


async def add_and_remove(spec: ClusterSpec) -> list[tuple[str, ...] | None]:
    """Let a second voter come, and the first one go, which leads; return who voted in between."""
    seen = [await voters_of(spec)]
    await until_told(spec, "controller-102", joins=True)
    seen.append(await voters_of(spec))
    assert not await change_voter(spec, "controller-102", joins=True), "it votes already"
    await until_told(spec, "controller-101", joins=False)
    async with asyncio.timeout(SECONDS):
        while (last := await voters_of(spec)) is None:
            await asyncio.sleep(RETRY_SECONDS)
    assert not await change_voter(spec, "controller-101", joins=False), "it votes no more"
    return [*seen, last]


def test_a_voter_joins_and_the_leader_leaves():
    """AddRaftVoter and RemoveRaftVoter, with the directory ids that the leader tells (KIP-853)."""
    with EmbeddedCluster(ClusterSpec(controllers=2, brokers=1, port=free_port_range(2), first_voters=1)) as cluster:
        seen = asyncio.run(add_and_remove(cluster.spec))
    assert seen == [("controller-101",), ("controller-101", "controller-102"), ("controller-102",)]


def test_nobody_is_asked_where_nobody_leads():
    """No answer is none: the change may come to be or not."""
    spec = ClusterSpec(controllers=1, brokers=1, port=free_port_range(2), first_voters=1)
    assert asyncio.run(voters_of(spec)) is None
    assert not asyncio.run(change_voter(spec, "controller-101", joins=False))

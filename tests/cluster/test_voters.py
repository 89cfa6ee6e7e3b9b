"""An operator changes the voters of a quorum, one at a time, and lists them."""

import asyncio

from kraftsim.cluster.administration import change_voter, voters_of
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec

SECONDS = 30.0
RETRY_SECONDS = 0.05


async def until_done(spec: ClusterSpec, name: str, *, joins: bool) -> None:
    """Retry until the change is done: a new voter has to catch up first."""
    async with asyncio.timeout(SECONDS):
        while not await change_voter(spec, name, joins=joins):
            await asyncio.sleep(RETRY_SECONDS)


async def add_and_remove(spec: ClusterSpec) -> list[tuple[str, ...] | None]:
    """Add a second voter, and remove the first one, which is the leader; return the voters in
    between.
    """
    seen = [await voters_of(spec)]
    await until_done(spec, "controller-102", joins=True)
    seen.append(await voters_of(spec))
    assert not await change_voter(spec, "controller-102", joins=True), "it is already a voter"
    await until_done(spec, "controller-101", joins=False)
    async with asyncio.timeout(SECONDS):
        while (last := await voters_of(spec)) is None:
            await asyncio.sleep(RETRY_SECONDS)
    assert not await change_voter(spec, "controller-101", joins=False), "it is not a voter any more"
    return [*seen, last]


def test_a_voter_joins_and_the_leader_leaves() -> None:
    """AddRaftVoter and RemoveRaftVoter, with the directory ids that the leader returns
    (KIP-853).
    """
    with EmbeddedCluster(
        ClusterSpec(controllers=2, brokers=1, port=free_port_range(2), first_voters=1)
    ) as cluster:
        seen = asyncio.run(add_and_remove(cluster.spec))
    assert seen == [("controller-101",), ("controller-101", "controller-102"), ("controller-102",)]


def test_voter_commands_fail_when_there_is_no_leader() -> None:
    """A missing response is reported as such: the change may be applied or not."""
    spec = ClusterSpec(controllers=1, brokers=1, port=free_port_range(2), first_voters=1)
    assert asyncio.run(voters_of(spec)) is None
    assert not asyncio.run(change_voter(spec, "controller-101", joins=False))

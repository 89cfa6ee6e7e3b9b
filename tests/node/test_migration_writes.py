"""What a migrating controller writes to ZooKeeper when the response to a write is lost: the write
has changed the version of /migration, on which the next one is conditional.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from kraftsim.migration.rules_driver import Claim
from kraftsim.migration.zookeeper_side import ZookeeperSide
from kraftsim.world.real.world import real_world
from kraftsim.zookeeper.client import ZookeeperClient, ZookeeperRefused
from kraftsim.zookeeper.rules_znode_writes import WriteKind, ZnodeOperation, ZnodeWrite
from kraftsim.zookeeper.znode_writer import MigrationConflict
from protocol.zookeeper.kafka_znodes import CONTROLLER_EPOCH, MIGRATION, MigrationZnode
from protocol.zookeeper.op_codes import ZookeeperError
from protocol.zookeeper.znodes import Asked, Result
from tests.node.zookeeper_server import RunningZookeeper

OWN = MigrationZnode(kraft_controller_id=101, kraft_controller_epoch=3)
OTHER = MigrationZnode(kraft_controller_id=102, kraft_controller_epoch=4)
OPERATIONS = tuple(
    ZnodeOperation(
        name=f"Write{path}", writes=(ZnodeWrite(kind=WriteKind.PUT, path=path, data=b"new"),)
    )
    for path in ("/first", "/second")
)
Work = Callable[["LosingClient", "SideOfTest", Claim], Awaitable[None]]


class LosingClient(ZookeeperClient):
    """Loses the responses to the writes with some numbers, from 0; the writes happen."""

    lost: dict[int, ZookeeperError]
    written = 0

    async def multi(self, asked: Sequence[Asked]) -> list[Result]:
        """Do the write, and fail as if the response were lost."""
        number, self.written = self.written, self.written + 1
        answer = await super().multi(asked)
        if number in self.lost:
            raise ZookeeperRefused(self.lost[number])
        return answer


class SideOfTest(ZookeeperSide):
    """Has one session."""

    def __init__(self, client: ZookeeperClient) -> None:
        self._client = client

    @property
    def client(self) -> ZookeeperClient:
        """The session."""
        assert self._client is not None
        return self._client


def with_zookeeper(place: Path, work: Work) -> None:
    """Run work with a session, and a claim whose /migration and /controller_epoch exist."""
    zookeeper = RunningZookeeper(place)
    zookeeper.start()

    async def run() -> None:
        world = real_world(
            run="test",
            node="controller-101",
            incarnation=1,
            data_dir=place / "data",
            events_dir=place / "events",
            seed=1,
            started_ns=0,
        )
        client = LosingClient(world, [("127.0.0.1", zookeeper.port)])
        client.lost = {}
        client.start()
        try:
            await client.create(MIGRATION, OWN.build())
            await client.create(CONTROLLER_EPOCH, b"7")
            for path in ("/first", "/second"):
                await client.create(path, b"old")
            claim = Claim(
                znode=OWN, migration_version=0, controller_epoch=7, controller_epoch_version=0
            )
            await work(client, SideOfTest(client), claim)
        finally:
            await client.close()

    try:
        asyncio.run(run())
    finally:
        zookeeper.stop()


@pytest.mark.parametrize("number", [0, 1])
def test_a_write_whose_response_was_lost_is_not_taken_for_that_of_another_controller(
    number: int, tmp_path: Path
) -> None:
    """Otherwise nothing that this controller decides reaches ZooKeeper or its brokers again."""

    async def work(client: LosingClient, side: SideOfTest, claim: Claim) -> None:
        client.lost = {number: ZookeeperError.CONNECTION_LOSS}
        moved = await side.move(await side.write(claim, OPERATIONS))
        _, stat = await client.get(MIGRATION)
        assert moved.migration_version == stat.version
        for path in ("/first", "/second"):
            assert (await client.get(path))[0] == b"new"

    with_zookeeper(tmp_path, work)


def test_what_failed_in_the_middle_is_repeated_with_the_former_claim(tmp_path: Path) -> None:
    """A session expires after some operations: the driver compares everything, with the claim that
    it had before.
    """

    async def work(client: LosingClient, side: SideOfTest, claim: Claim) -> None:
        client.lost = {1: ZookeeperError.SESSION_EXPIRED}
        with pytest.raises(ZookeeperRefused):
            await side.write(claim, OPERATIONS)
        moved = await side.move(claim.in_step(9, 3))
        data, stat = await client.get(MIGRATION)
        assert (data, stat.version) == (moved.znode.build(), moved.migration_version)

    with_zookeeper(tmp_path, work)


def test_the_write_of_another_controller_is_a_conflict(tmp_path: Path) -> None:
    """It is never overwritten."""

    async def work(client: LosingClient, side: SideOfTest, claim: Claim) -> None:
        await client.set(MIGRATION, OTHER.build())
        with pytest.raises(MigrationConflict):
            await side.write(claim, OPERATIONS)
        with pytest.raises(MigrationConflict):
            await side.move(claim)
        assert (await client.get(MIGRATION))[0] == OTHER.build()
        assert (await client.get("/first"))[0] == b"old"

    with_zookeeper(tmp_path, work)

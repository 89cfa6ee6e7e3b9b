"""Over sockets: a migration is given up, and its controllers are formatted again."""

import asyncio
from pathlib import Path

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.scenario import Mode
from kraftsim.cluster.socket_environment import SocketEnvironment
from kraftsim.cluster.spec import ClusterSpec
from protocol.storage.file_names import META_PROPERTIES

WAIT_SECONDS = 30.0


def test_a_broker_leads_after_the_rollback_and_controllers_begin_with_nothing(
    tmp_path: Path,
) -> None:
    """No wait for a KRaft leader that will never come; then another directory id, and a log of its
    own.
    """
    spec = ClusterSpec(controllers=1, brokers=1, zookeeper=True, port=free_port_range(1))
    directory = RunDirectory(tmp_path / "run")
    directory.create()

    async def run() -> None:
        async with EmbeddedCluster(spec, directory) as cluster:
            stage = SocketEnvironment(cluster, Mode.EMBEDDED, directory, (), {})
            properties = directory.data("controller-101") / META_PROPERTIES
            async with asyncio.timeout(WAIT_SECONDS):
                await stage.wait_for_leader()
                first = properties.read_text()
                await stage.give_up_migration()
                await stage.wait_for_leader()
                assert stage.is_down("controller-101")
                await stage.format_new_quorum(2)
                await stage.wait_for_leader()
            assert not stage.is_down("controller-101")
            assert properties.read_text() != first
            stage.close()

    asyncio.run(run())
    (events,) = (directory.root / "events").glob("harness*.jsonl")
    assert '"kind":"MetadataLogBegun","metadata_log":2' in events.read_text()

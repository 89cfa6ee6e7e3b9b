"""The initial contents and the location of the metadata log: bootstrap.checkpoint and
metadata.log.dir.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from kraftsim.releases.release import release
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.controller import Controller
from kraftsim.server.identity import ForeignDirectory
from kraftsim.server.parts import Parts
from kraftsim.world.interface import World
from kraftsim.world.simulated import Simulation
from protocol.metadata.registry import build_record, parse_record
from protocol.metadata.security import UserScramCredentialRecord
from protocol.metadata.settings import ConfigRecord, FeatureLevelRecord
from protocol.records.batches import split_batches
from protocol.schema import Message
from protocol.storage.metadata_snapshot import build_metadata_snapshot
from protocol.storage.text_files import parse_meta_properties
from tests.node.brokers import running_cluster
from tests.node.conftest import MakeWorld
from tests.node.controllers import CLUSTER_ID, controller_config, parts, running_controller

LAST_OF_3_9 = ("ZkMigrationStateRecord", "EndTransactionRecord")
METADATA = "__cluster_metadata-0"
ALICE = UserScramCredentialRecord(
    name="alice",
    mechanism=1,
    salt=b"salt",
    stored_key=b"s" * 32,
    server_key=b"k" * 32,
    iterations=8192,
)
OTHER_CONFIG = ConfigRecord(
    resource_type=4, resource_name="", name="message.max.bytes", value="1000"
)


def level(value: int, name: str = "metadata.version") -> FeatureLevelRecord:
    return FeatureLevelRecord(name=name, feature_level=value)


def checkpoint(*records: Message) -> bytes:
    return build_metadata_snapshot([build_record(record, 0) for record in records], timestamp=0)


def first_records(log: bytes) -> list[str]:
    """The kinds of the records before any registration."""
    kinds = [
        type(parse_record(record.value or b"")).__name__
        for batch in split_batches(log)
        if not batch.is_control
        for record in batch.records()
    ]
    return (
        kinds[: kinds.index("RegisterControllerRecord")]
        if "RegisterControllerRecord" in kinds
        else kinds
    )


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        (
            [level(21), ALICE],
            [
                "BeginTransactionRecord",
                "FeatureLevelRecord",
                "UserScramCredentialRecord",
                *LAST_OF_3_9,
            ],
        ),
        ([level(11), ALICE], ["FeatureLevelRecord", "UserScramCredentialRecord"]),
        ([OTHER_CONFIG, level(4)], ["ConfigRecord", "FeatureLevelRecord"]),
    ],
)
async def test_empty_log_begins_with_the_contents_of_bootstrap_checkpoint(
    make_world: MakeWorld, tmp_path: Path, given: Sequence[Message], kinds: list[str]
) -> None:
    """In the file's order, at its level of metadata.version, and only once (KIP-778, KIP-900)."""
    data = tmp_path / "data"
    data.mkdir()
    (data / "bootstrap.checkpoint").write_bytes(checkpoint(*given))
    for _ in range(2):
        async with running_controller(make_world()) as controller:
            state = controller.metadata_writer.state
            assert state.features.finalized == {
                "metadata.version": next(
                    each.feature_level for each in given if isinstance(each, FeatureLevelRecord)
                )
            }
            assert [record.name for record in state.registries.scram_credentials.records()] == [
                "alice"
            ] * (ALICE in given)
            assert dict(state.configs.configs_of(4, "")) == (
                {"message.max.bytes": "1000"} if OTHER_CONFIG in given else {}
            )
    assert first_records((data / METADATA / "00000000000000000000.log").read_bytes()) == kinds


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"nothing", "bootstrap.checkpoint cannot be read: "),
        (checkpoint(level(21))[:-1], "bootstrap.checkpoint cannot be read: "),
        (checkpoint(ALICE), "no FeatureLevelRecord for metadata.version"),
        (checkpoint(level(3)), "metadata.version at level 3, before 3.3-IV0, is not supported"),
        (
            checkpoint(level(25)),
            r"metadata.version at level 25 is not supported by 3.9 \(1 to 21\)",
        ),
        (
            checkpoint(level(21), level(2, "transaction.version")),
            r"transaction.version at level 2 is not supported by 3.9 \(0 to 0\)",
        ),
    ],
)
async def test_invalid_bootstrap_checkpoint_is_rejected_in_one_line(
    make_world: MakeWorld, tmp_path: Path, content: bytes, complaint: str
) -> None:
    """At every start, even if the log is complete: like Apache Kafka, which reads the file
    first.
    """
    async with running_controller(make_world()):
        pass
    (tmp_path / "data" / "bootstrap.checkpoint").write_bytes(content)
    with pytest.raises(ConfigError, match=complaint) as refused:
        await Controller(make_world(), controller_config(), parts()).start()
    assert "\n" not in str(refused.value)


async def test_unsupported_level_in_the_file_is_fatal_only_with_an_empty_log(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    """The file is not updated when levels are upgraded: since 4.0.1 it matters only if a log must
    begin with it (KAFKA-19192).
    """
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bootstrap.checkpoint").write_bytes(checkpoint(level(4)))
    controller = Controller(
        make_world(), controller_config(kraftsim_release="4.0"), Parts.for_release(release("4.0"))
    )
    await controller.start()
    async with asyncio.timeout(20):
        trouble = await controller.failed()
    assert (
        "bootstrap.checkpoint: metadata.version at level 4 is not supported by 4.0 (7 to 25)"
        in str(trouble)
    )


async def test_metadata_log_may_have_its_own_directory(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    """metadata.log.dir contains log, quorum-state and bootstrap.checkpoint, and has a directory id
    other than the data directory's.
    """
    data, metadata = tmp_path / "data", tmp_path / "metadata"
    metadata.mkdir()
    (metadata / "bootstrap.checkpoint").write_bytes(checkpoint(level(20)))
    for _ in range(2):
        async with running_controller(make_world(), metadata_log_dir=str(metadata)) as controller:
            assert controller.metadata_writer.state.features.finalized == {"metadata.version": 20}
            own = controller.raft.quorum.own.directory_id
    assert {"quorum-state", "00000000000000000000.log"} <= {
        path.name for path in (metadata / METADATA).iterdir()
    }
    assert [path.name for path in data.iterdir()] == ["meta.properties"]
    found = [
        parse_meta_properties((directory / "meta.properties").read_bytes())
        for directory in (data, metadata)
    ]
    assert [each.node_id for each in found] == [101, 101] and found[0].directory_id != found[
        1
    ].directory_id == own


async def test_metadata_log_in_another_directory_prevents_the_start(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    """Kafka does not start if metadata.log.dir and a data directory disagree, nor in the directory
    of another node.
    """
    async with running_controller(make_world()):
        pass
    with pytest.raises(
        ConfigError, match=r"holds a metadata log, and metadata.log.dir says .*/metadata"
    ):
        await Controller(
            make_world(), controller_config(metadata_log_dir=str(tmp_path / "metadata")), parts()
        ).start()
    (tmp_path / "metadata").mkdir(exist_ok=True)
    (tmp_path / "metadata" / "meta.properties").write_text(
        f"version=1\nnode.id=7\ncluster.id={CLUSTER_ID}\n"
    )
    for path in sorted((tmp_path / "data" / METADATA).iterdir()):
        path.unlink()
    with pytest.raises(ForeignDirectory, match=r"metadata.log.dir: .* belongs to node 7"):
        await Controller(
            make_world(), controller_config(metadata_log_dir=str(tmp_path / "metadata")), parts()
        ).start()


def test_broker_uses_the_metadata_directory_and_registers_the_data_directory() -> None:
    """In simulation it is a part of the one disk."""
    with running_cluster(metadata_log_dir="/metadata") as cluster:
        names = cluster.simulation.hosts["broker-1"].durable.names
        assert (
            "metadata/__cluster_metadata-0/00000000000000000000.log" in names
            and "metadata/meta.properties" in names
        )
        assert not [name for name in names if name.startswith(METADATA)]
        registered = cluster.brokers["broker-1"].image.broker(1)
        assert registered is not None
        assert registered.directories == (
            parse_meta_properties(bytes(names["meta.properties"].cache)).directory_id,
        )


def test_simulated_directory_is_a_subtree_of_the_disk() -> None:
    """Only its contents can be reached through it."""
    with Simulation(1) as simulation:
        world: World = simulation.world_of(simulation.add_host("one"))
        with pytest.raises(ValueError, match="is not a path inside"):
            world.elsewhere("/metadata").disk.open("../meta.properties")

"""The cluster of a KRaft node: the configured one, else that of its directories, else the default
one.
"""

import asyncio
from pathlib import Path

import pytest

from kraftsim.cluster.launch import build_node
from kraftsim.server.config import DEFAULT_CLUSTER_ID, NodeConfig
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.events import NodeStarted
from kraftsim.server.identity import ForeignDirectory, check_formattable
from protocol.storage.text_files import (
    KRAFT_VERSION,
    ZOOKEEPER_VERSION,
    MetaProperties,
    build_meta_properties,
    parse_meta_properties,
)
from tests.node.conftest import MakeWorld

OTHER = "b3RoZXItY2x1c3Rlci1pZA"


def controller(tmp_path: Path, **settings: str) -> NodeConfig:
    properties = {
        "process.roles": "controller",
        "node.id": "101",
        "listeners": "CONTROLLER://127.0.0.1:0",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "101@127.0.0.1:9193",
        "log.dirs": f"{tmp_path / 'data'},{tmp_path / 'second'}",
    }
    return NodeConfig.parse(
        {**properties, **{name.replace("_", "."): value for name, value in settings.items()}}
    )


def leave(directory: Path, version: int = KRAFT_VERSION) -> None:
    """Leave the files of a node of another cluster, or of kafka-storage."""
    directory.mkdir()
    (directory / "meta.properties").write_bytes(
        build_meta_properties(MetaProperties(version=version, cluster_id=OTHER, node_id=101))
    )


@pytest.mark.parametrize(
    ("place", "version", "wanted"),
    [
        ("data", KRAFT_VERSION, OTHER),
        ("data", ZOOKEEPER_VERSION, OTHER),
        (None, KRAFT_VERSION, DEFAULT_CLUSTER_ID),
    ],
)
async def test_node_without_a_configured_cluster_id_uses_its_directorys(
    make_world: MakeWorld, tmp_path: Path, place: str | None, version: int, wanted: str
) -> None:
    """Whether kafka-storage wrote it, a KRaft node, or a broker in ZooKeeper mode that got the id
    from ZooKeeper.
    """
    if place is not None:
        leave(tmp_path / place, version)
    world = make_world()
    node = build_node(controller(tmp_path), world)
    async with asyncio.timeout(20):
        await node.start()
        await node.ready()
        await node.stop()
    assert [event.cluster_id for event in world.emitted_of(NodeStarted)] == [wanted]
    assert (
        parse_meta_properties((tmp_path / "data" / "meta.properties").read_bytes()).cluster_id
        == wanted
    )


async def test_any_of_several_directories_provides_the_cluster_id(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    """A new disk in place of the first one gets the id of the others."""
    leave(tmp_path / "second")
    node = build_node(controller(tmp_path), make_world())
    await node.start()
    await node.stop()
    assert (
        parse_meta_properties((tmp_path / "data" / "meta.properties").read_bytes()).cluster_id
        == OTHER
    )


async def test_configured_cluster_id_must_match_the_directory(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    leave(tmp_path / "data")
    with pytest.raises(
        ForeignDirectory, match="belongs to cluster b3RoZXItY2x1c3Rlci1pZA, not to somewhere"
    ):
        await build_node(
            controller(tmp_path, kraftsim_cluster_id="somewhere"), make_world()
        ).start()


async def test_unreadable_meta_properties_are_reported_at_load(
    make_world: MakeWorld, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_bytes(b"version=what")
    with pytest.raises(ValueError, match=r"meta\.properties cannot be read"):
        await build_node(controller(tmp_path), make_world()).start()


@pytest.mark.parametrize(
    ("role", "files", "line"),
    [
        (
            "controller",
            {"t-0/00000000000000000000.log": b""},
            "data holds t-0 and no meta.properties",
        ),
        ("broker", {"t-0/00000000000000000000.log": b""}, "data holds t-0 and no meta.properties"),
        (
            "controller",
            {"__cluster_metadata-0/quorum-state": b"{}"},
            "holds __cluster_metadata-0 and no",
        ),
        ("broker", {"meta.properties": b""}, r"meta.properties names no node \(broker.id\)"),
        (
            "broker",
            {"meta.properties": bytes(range(100, 250)) * 2},
            "meta.properties names no node",
        ),
        (
            "controller",
            {"meta.properties": b"version=0\nbroker.id=101\n"},
            "meta.properties names no cluster",
        ),
        ("broker", {"meta.properties": b"version=2\nnode.id=101\n"}, "cannot be read"),
        ("broker", {"../second/t-0/x.log": b""}, "second holds t-0 and no meta.properties"),
    ],
)
async def test_directory_that_lost_its_meta_properties_is_not_formatted(
    make_world: MakeWorld, tmp_path: Path, role: str, files: dict[str, bytes], line: str
) -> None:
    """Apache Kafka 3.9.1 and 4.4.0 fail at startup in each of these cases
    (MetaPropertiesEnsemble).
    """
    for name, content in files.items():
        path = tmp_path / "data" / name
        (tmp_path / "data").mkdir(exist_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    config = {"process_roles": role}
    if role == "broker":
        config |= {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "controller_quorum_voters": "7@127.0.0.1:9193",
        }
    before = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=line):
        await build_node(controller(tmp_path, **config), make_world()).start()
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    "name",
    [
        "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint",
        "meta.properties.tmp",
        "bootstrap.checkpoint",
    ],
)
def test_files_written_before_formatting_are_no_data(
    make_world: MakeWorld, tmp_path: Path, name: str
) -> None:
    """A crash may interrupt the formatting: the next start formats again."""
    world = make_world()
    (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "data" / name).write_bytes(b"")
    check_formattable(world, controller(tmp_path), "log.dirs")

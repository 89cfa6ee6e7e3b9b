"""Directories formatted by Apache Kafka's kafka-storage: our controller starts from their bootstrap
records, as Apache Kafka's does.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kraftsim.cluster.ports import free_port_range
from protocol.metadata.registry import build_record
from protocol.metadata.settings import FeatureLevelRecord
from protocol.storage.metadata_snapshot import build_metadata_snapshot
from tests.apache_kafka.class_path import DEFAULT_RELEASE, class_path
from tests.apache_kafka.harness import CLUSTER_ID, ApacheKafka, run_tool
from tests.apache_kafka.mixed import METADATA_LOG, SMALL_JVM, OurNode, metadata_records, wait_until

pytestmark = pytest.mark.interop
NODE_ID = 101
ALICE = (
    'SCRAM-SHA-256=[name=alice,salt="MWx2NHBkbnc0ZndxN25vdGN4bTB5Y3o0Ng==",iterations=8192,'
    "password=secret]"
)
BOB = "SCRAM-SHA-512=[name=bob,password=secret]"
OF_THE_NODE = "REGISTER_CONTROLLER_RECORD"
IDLE = "NO_OP_RECORD"
BOOTSTRAP = "bootstrap.checkpoint"


@pytest.fixture(scope="module", autouse=True)
def kafka_is_there() -> None:
    """Skips without Java or Maven."""
    class_path()


def properties(place: Path, *, port: int) -> dict[str, str]:
    """One controller with a data directory and a metadata directory."""
    return {
        "process.roles": "controller",
        "node.id": str(NODE_ID),
        "listeners": f"CONTROLLER://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"{NODE_ID}@127.0.0.1:{port}",
        "log.dirs": str(place / "data"),
        "metadata.log.dir": str(place / "metadata"),
    }


def write_properties(place: Path, *, port: int) -> Path:
    """Write the properties where the harness expects them."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "server.properties"
    file.write_text(
        "".join(f"{key}={value}\n" for key, value in properties(place, port=port).items())
    )
    return file


def formatted(place: Path, *options: str) -> Path:
    """Let kafka-storage create the directories."""
    file = write_properties(place, port=9093)
    run_tool(
        DEFAULT_RELEASE,
        "storage",
        "format",
        "--cluster-id",
        CLUSTER_ID,
        "--config",
        str(file),
        *options,
    )
    return place


@contextmanager
def theirs(place: Path, *, port: int) -> Iterator[ApacheKafka]:
    """Run Apache Kafka's controller in formatted directories."""
    write_properties(place, port=port)
    node = ApacheKafka(
        DEFAULT_RELEASE,
        {"process.roles": "controller"},
        SMALL_JVM,
        controller_port=port,
        directory=place,
    )
    node.launch()
    try:
        yield node
    finally:
        node.stop(cleanly=False)


def first_records(place: Path) -> list[tuple[str, Any]]:
    """The records of the log in the metadata directory, without those about the node itself.

    Empty until the controller is idle.
    """
    log = place / "metadata" / METADATA_LOG
    found = metadata_records(log, release=DEFAULT_RELEASE) if log.exists() else []
    is_idle = any(each["type"] == IDLE for each in found)
    return (
        [(each["type"], each["data"]) for each in found if each["type"] not in (IDLE, OF_THE_NODE)]
        if is_idle
        else []
    )


@pytest.mark.parametrize("level", ["3.9-IV0", "3.5-IV2"])
def test_a_formatted_cluster_starts_with_the_same_records(tmp_path: Path, level: str) -> None:
    """format --release-version --add-scram: the same records in the same order, in the metadata
    directory, and none in the data directory.
    """
    source = formatted(
        tmp_path / "formatted", "--release-version", level, "--add-scram", ALICE, "--add-scram", BOB
    )
    logs = {}
    for name in ("theirs", "ours"):
        place, port = shutil.copytree(source, tmp_path / name), free_port_range(1)
        if name == "theirs":
            with theirs(place, port=port) as node:
                node.wait()
                wait_until(partial(first_records, place), "Apache Kafka is idle")
        else:
            with OurNode(
                tmp_path / "our-node",
                {**properties(place, port=port), "kraftsim.cluster.id": CLUSTER_ID},
                data=place / "data",
            ):
                wait_until(partial(first_records, place), "our controller is idle")
        logs[name] = first_records(place)
        assert not (place / "data" / "__cluster_metadata-0").exists()
    assert logs["ours"] == logs["theirs"]
    kinds = [kind for kind, _ in logs["ours"]]
    assert kinds.count("USER_SCRAM_CREDENTIAL_RECORD") == 2 and "FEATURE_LEVEL_RECORD" in kinds


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"nothing that could be read", id="not a snapshot"),
        pytest.param([("metadata.version", 3)], id="before 3.3"),
        pytest.param([("metadata.version", 99)], id="an unknown metadata.version"),
        pytest.param([], id="no level"),
    ],
)
def test_neither_starts_with_an_unusable_bootstrap_file(
    tmp_path: Path, content: bytes | list[tuple[str, int]]
) -> None:
    """Apache Kafka exits, and so does our node."""
    records = (
        []
        if isinstance(content, bytes)
        else [FeatureLevelRecord(name=name, feature_level=level) for name, level in content]
    )
    source = formatted(tmp_path / "formatted")
    bad = (
        content
        if isinstance(content, bytes)
        else build_metadata_snapshot([build_record(record, 0) for record in records], timestamp=0)
    )
    (source / "metadata" / BOOTSTRAP).write_bytes(bad)
    place = shutil.copytree(source, tmp_path / "ours")
    port = free_port_range(1)
    with theirs(source, port=port) as node:
        wait_until(lambda: not node.is_running, "Apache Kafka exits")
    our = OurNode(
        tmp_path / "our-node",
        {**properties(place, port=port), "kraftsim.cluster.id": CLUSTER_ID},
        data=place / "data",
    )
    with pytest.raises(AssertionError, match=BOOTSTRAP):
        our.start()

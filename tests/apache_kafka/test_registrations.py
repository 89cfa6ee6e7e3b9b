"""A cluster whose metadata.version is upgraded to a level with directories: its brokers register
again, with either kind of controller.

The registrations differ only in the directories: incarnation id and epoch do not change.
Source: KIP-858, kafka.server.BrokerRegistrationTracker.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import CONTROLLER_PORT_DISTANCE
from protocol.metadata.registry import build_record
from protocol.metadata.settings import FeatureLevelRecord
from protocol.storage.metadata_snapshot import build_metadata_snapshot
from tests.apache_kafka.class_path import DEFAULT_RELEASE
from tests.apache_kafka.harness import ApacheKafka, run_tool
from tests.apache_kafka.mixed import (
    METADATA_LOG,
    SMALL_JVM,
    OurNode,
    apache,
    metadata_records,
    voters_text,
    wait_until,
)
from tests.cluster.running import QUICK_SESSIONS

pytestmark = pytest.mark.interop
CONTROLLER, OURS, THEIRS = 101, 5, 6
WITHOUT_DIRECTORIES, LEVEL = "3.6-IV2", 14
WITH_DIRECTORIES = "3.9"
KEPT = ("incarnationId", "brokerEpoch", "endPoints", "features")
COMMON = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    **QUICK_SESSIONS,
}


@contextmanager
def our_controller(directory: Path, port: int) -> Iterator[Path]:
    """Run a controller of ours whose cluster starts without directories; yields its metadata
    log.
    """
    node = OurNode(
        directory / "controller",
        {
            **COMMON,
            "process.roles": "controller",
            "node.id": str(CONTROLLER),
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "controller.quorum.voters": voters_text({CONTROLLER: port}),
        },
    )
    data = directory / "controller" / "data"
    data.mkdir()
    level = FeatureLevelRecord(name="metadata.version", feature_level=LEVEL)
    (data / "bootstrap.checkpoint").write_bytes(
        build_metadata_snapshot([build_record(level, 0)], timestamp=0)
    )
    with node:
        yield data / METADATA_LOG


@contextmanager
def their_controller(directory: Path, port: int) -> Iterator[Path]:
    """Run one of Apache Kafka's; yields its metadata log."""
    settings = {
        **QUICK_SESSIONS,
        "process.roles": "controller",
        "node.id": str(CONTROLLER),
        "controller.quorum.voters": voters_text({CONTROLLER: port}),
    }
    node = ApacheKafka(
        DEFAULT_RELEASE,
        settings,
        SMALL_JVM,
        controller_port=port,
        metadata_version=WITHOUT_DIRECTORIES,
    )
    with node:
        yield node.data / METADATA_LOG


def registrations(log: Path) -> dict[int, list[dict[str, Any]]]:
    """Return the registrations of each broker, in the order of the log."""
    found: dict[int, list[dict[str, Any]]] = {OURS: [], THEIRS: []}
    for record in metadata_records(log, release=DEFAULT_RELEASE) if log.exists() else []:
        if record["type"] == "REGISTER_BROKER_RECORD":
            found[record["data"]["brokerId"]].append(record["data"])
    return found


@pytest.mark.parametrize("controller", [our_controller, their_controller])
def test_brokers_reregister_when_metadata_version_enables_directories(
    tmp_path: Path, controller: Callable[[Path, int], AbstractContextManager[Path]]
) -> None:
    """kafka-features upgrades the level; a broker of ours and one of Apache Kafka's react the
    same.
    """
    port = free_port_range(1)
    controller_port = port + CONTROLLER_PORT_DISTANCE
    voters = {"controller.quorum.voters": voters_text({CONTROLLER: controller_port})}
    its = {
        "process.roles": "broker",
        "node.id": str(OURS),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        **COMMON,
        **voters,
    }
    with ExitStack() as running:
        log = running.enter_context(controller(tmp_path, controller_port))
        running.enter_context(
            apache(DEFAULT_RELEASE, {"process.roles": "broker", "node.id": str(THEIRS), **voters})
        )
        running.enter_context(OurNode(tmp_path / "broker", its))
        first = registrations(log)
        assert [len(found) for found in first.values()] == [1, 1] and not any(
            found[0].get("logDirs") for found in first.values()
        ), first
        run_tool(
            DEFAULT_RELEASE,
            "features",
            "--bootstrap-server",
            f"127.0.0.1:{port}",
            "upgrade",
            "--metadata",
            WITH_DIRECTORIES,
        )
        wait_until(
            lambda: all(len(found) > 1 for found in registrations(log).values()),
            "both brokers have registered again",
        )
        last = registrations(log)
    for broker_id, (before, after) in last.items():
        assert len(after["logDirs"]) == 1, broker_id
        assert {name: after.get(name) for name in KEPT} == {name: before.get(name) for name in KEPT}
        assert after["fenced"] is False, "it is the same incarnation and stays unfenced"

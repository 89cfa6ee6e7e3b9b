"""Dynamic changes of listeners and related configs: a broker of Apache Kafka and one of ours refuse
the same changes.

The broker of Apache Kafka is not a combined node, and neither is ours. Nothing is changed: each
change is only validated.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.conformance.peer import Peer
from protocol.config_resources import ConfigResourceType
from protocol.messages.k44_incremental_alter_configs import (
    SET,
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.apache_kafka.config_facts import line_of
from tests.apache_kafka.harness import ApacheKafka

pytestmark = pytest.mark.interop
MAP, LISTENERS, ADVERTISED = "listener.security.protocol.map", "listeners", "advertised.listeners"
OTHER: Final = "127.0.0.1:22777"
"""Nothing listens here: changes are only validated."""
LOCAL: Final = "log.local.retention."
Change = dict[str, str]


def changes(own: str) -> Iterator[Change]:
    """Yield changes; `own` is the address of the broker's only listener."""
    for protocols in (
        "PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "PLAINTEXT:PLAINTEXT",
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,X:NONSENSE",
        "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,X:SASL_SSL",
        "PLAINTEXT:PLAINTEXT,PLAINTEXT:SSL,CONTROLLER:PLAINTEXT",
        "plaintext:PLAINTEXT,controller:PLAINTEXT",
        "PLAINTEXT:plaintext,CONTROLLER:PLAINTEXT",
        "",
    ):
        yield {MAP: protocols}
    with_x = {MAP: "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,X:PLAINTEXT"}
    yield {LISTENERS: f"PLAINTEXT://{own},X://{OTHER}", **with_x}
    yield {LISTENERS: f"PLAINTEXT://{own},X://{own}", **with_x}
    yield {LISTENERS: f"PLAINTEXT://{own},X://{OTHER}"}
    yield {LISTENERS: f"X://{OTHER}", **with_x}
    for listeners in (
        f"PLAINTEXT://{own}",
        f"PLAINTEXT://{OTHER}",
        f"PLAINTEXT://{own},PLAINTEXT://{OTHER}",
        f"CONTROLLER://{OTHER},PLAINTEXT://{own}",
    ):
        yield {LISTENERS: listeners}
    for word in (
        "SSL://127.0.0.1:1",
        "PLAINTEXT",
        "PLAINTEXT://",
        "://h:1",
        "PLAINTEXT://h",
        "PLAINTEXT://h:x",
        "PLAINTEXT://h h:1",
        "PLAINTEXT:h:1",
        "",
        ",",
    ):
        yield {LISTENERS: word}
    for advertised in (f"PLAINTEXT://{own}", "PLAINTEXT://localhost:1", ""):
        yield {ADVERTISED: advertised}
    yield {"inter.broker.listener.name": "X"}
    yield {"security.inter.broker.protocol": "SSL"}
    for overrides in (
        "127.0.0.1:0",
        "127.0.0.1:-1",
        "127.0.0.1",
        " 127.0.0.1 : 5 ",
        ",",
        "127.0.0.1:5,127.0.0.1:6",
    ):
        yield {"max.connections.per.ip.overrides": overrides}
    yield {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"}
    for name in (
        "max.connections",
        "ssl.client.auth",
        "ssl.keystore.type",
        "sasl.enabled.mechanisms",
        "foo",
    ):
        for listener in ("plaintext", "nosuch"):
            yield {f"listener.name.{listener}.{name}": "5"}
    for unit in ("ms", "bytes"):
        for local, whole in (
            ("60", "50"),
            ("50", "50"),
            ("-1", "50"),
            ("-2", "50"),
            ("-1", "-1"),
            ("60", "-1"),
            ("-3", "-1"),
        ):
            yield {f"{LOCAL}{unit}": local, f"log.retention.{unit}": whole}
    yield {f"{LOCAL}ms": "604800001"}
    yield {f"{LOCAL}ms": "604800000"}
    yield {f"{LOCAL}bytes": "5"}


def error(address: str, change: Change) -> int:
    """Return the error of a change that is only validated."""
    operations = [
        AlterableConfig(name=name, config_operation=SET, value=value)
        for name, value in change.items()
    ]
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="1", configs=operations
    )
    with Peer.at(address) as peer:
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
        (row,) = peer.ask(request, 1, IncrementalAlterConfigsResponse).responses
    return row.error_code


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_the_same_listener_changes_are_refused(release: str) -> None:
    port = free_port_range(1)
    quorum = {"controller.quorum.voters": f"9@127.0.0.1:{port + 100}"}
    controller = ApacheKafka(
        release,
        {"process.roles": "controller", "node.id": "9", **quorum},
        port=port,
        controller_port=port + 100,
    )
    broker = ApacheKafka(
        release,
        {"process.roles": "broker", "node.id": "1", **quorum},
        port=port,
        controller_port=port + 100,
    )
    with (
        controller,
        broker,
        EmbeddedCluster(
            ClusterSpec(brokers=1, release=line_of(release), port=free_port_range(1))
        ) as cluster,
    ):
        theirs = [error(broker.bootstrap, change) for change in changes(broker.bootstrap)]
        own = list(changes(cluster.bootstrap))
        ours = [error(cluster.bootstrap, change) for change in own]
    assert 0 in theirs and len(set(theirs)) > 1
    assert [
        (change, their, our)
        for change, their, our in zip(own, theirs, ours, strict=True)
        if their != our
    ] == []

"""`kraftsim container`: what the container image runs, configured by its environment."""

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kraftsim.cli.failure import VIOLATED, Failure, fail
from kraftsim.cli.node_log import log_options
from kraftsim.cli.options import DIRECTORY, codec_option, known_settings

if TYPE_CHECKING:
    from kraftsim.cluster.container import ContainerPlan

ANSWER_MS = 5000
OF_A_KRAFT_NODE = (
    "[BrokerLifecycleManager id={node}] The controller has unfenced the broker. Transitioning from "
    "RECOVERY to RUNNING.",
    "[KafkaRaftServer nodeId={node}] Kafka Server started (kafka.server.KafkaRaftServer)",
)
IN_ZOOKEEPER_MODE = ("[KafkaServer id={node}] started (kafka.server.KafkaServer)",)
"""What Testcontainers waits for in the log of a container: `Transitioning from RECOVERY to RUNNING`
(Java), `Kafka Server started` and `[KafkaServer id=1] started` (Python).
"""


@click.command(
    epilog="""\b
Examples:
  docker run -p 9092:9092 kraftsim
  docker run -p 9092-9094:9092-9094 -e KRAFTSIM_BROKERS=3 kraftsim
  docker run -p 19092:9092 -e KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:19092 \\
      -e KAFKA_LISTENERS=PLAINTEXT://:9092,CONTROLLER://:9093 kraftsim
  KRAFTSIM_RELEASE=4.1 kraftsim container --data runs/box    # the same without a container"""
)
@click.option(
    "--data",
    type=DIRECTORY,
    default=Path("node"),
    show_default=True,
    help="Directory for disks, event logs and logs.",
)
@click.option(
    "--properties",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("/mnt/shared/config/server.properties"),
    show_default=True,
    help="Properties file, if it exists; variables override it.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Ask the running node whether it answers, as a health check; exits 1 if not.",
)
@codec_option
@log_options
def container(data: Path, properties: Path, check: bool) -> int:
    """Run what a container of kraftsim runs: one combined node, or the node of KAFKA_PROCESS_ROLES,
    or a cluster of KRAFTSIM_BROKERS nodes.

    KAFKA_... variables are Kafka's settings, as in Apache Kafka's image: KAFKA_LOG_SEGMENT_BYTES is
    log.segment.bytes. KRAFTSIM_RELEASE, KRAFTSIM_EVENTS_DIR and so on are those of kraftsim.
    Unknown settings are named and ignored. Runs until SIGTERM, then stops cleanly.
    """
    started_ns = time.monotonic_ns()
    from kraftsim.cluster.container import address_to_check, container_plan
    from kraftsim.cluster.spec import SpecError
    from kraftsim.server.config_keys import ConfigError

    try:
        plan = container_plan(
            _given(os.environ, properties, is_quiet=check),
            os.environ,
            data=str(data),
        )
        if check:
            return _check(*address_to_check(plan))
        return _run(plan, data, started_ns)
    except (ConfigError, SpecError, ValueError) as trouble:
        fail(trouble)


def _given(environment: Mapping[str, str], properties: Path, *, is_quiet: bool) -> dict[str, str]:
    from kraftsim.cli.properties import properties_of_environment, read_properties
    from kraftsim.cluster.own_properties import text_of
    from kraftsim.server.config import unknown_keys

    from_file = read_properties(text_of(properties)) if properties.exists() else {}
    merged = {**from_file, **properties_of_environment(environment)}
    if is_quiet:
        unknown = unknown_keys(merged)
        return {name: value for name, value in merged.items() if name not in unknown}
    return known_settings(merged)


def _check(host: str, port: int) -> int:
    import asyncio

    from kraftsim.server.outbound import PeerConnection
    from protocol.messages.k18_api_versions import ApiVersionsRequest

    async def ask() -> int:
        connection = PeerConnection(host, port, client_id="kraftsim-health")
        try:
            await connection.connect(timeout_ms=ANSWER_MS)
            await connection.request(ApiVersionsRequest(), timeout_ms=ANSWER_MS)
        except OSError as failure:
            click.echo(f"{host}:{port}: {failure}", err=True)
            return VIOLATED
        finally:
            connection.close()
        return 0

    return asyncio.run(ask())


def _run(plan: "ContainerPlan", data: Path, started_ns: int) -> int:
    from kraftsim.cli.node import run_node
    from kraftsim.cluster.readiness import ClusterFailed
    from kraftsim.cluster.supervise import up
    from kraftsim.server.config import NodeConfig

    if plan.left_out:
        click.echo(f"settings of one node are left out: {', '.join(plan.left_out)}", err=True)
    if plan.cluster is not None:
        try:
            return up(plan.cluster, data, False, lambda line: _announce("1", line))
        except (ClusterFailed, KeyError, OSError) as trouble:
            fail(trouble)
    if plan.node is None:
        raise Failure("nothing to run")
    config = NodeConfig.parse(plan.node)
    kinds = IN_ZOOKEEPER_MODE if config.is_zookeeper_mode else OF_A_KRAFT_NODE
    run_node(config, started_ns, on_ready=lambda: _announce(str(config.node_id), lines=kinds))
    return 0


def _announce(node: str, *said: str, lines: tuple[str, ...] = OF_A_KRAFT_NODE) -> None:
    for line in (*said, *lines):
        click.echo(line.format(node=node))
    sys.stdout.flush()

"""Formats the log directories of new nodes of Apache Kafka, with its own storage tool.

The tool is another Java that starts, so it runs once for each release and metadata.version; nodes
get a copy with their id. Voters of a dynamic quorum are formatted one by one.
Source: org.apache.kafka.tools.StorageTool, KIP-631, KIP-853.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kraftsim.cluster.apache_kafka.jars import ApacheKafkaMissing, KafkaJars
from kraftsim.cluster.spec import CONTROLLER_LISTENER, DEFAULT_CLUSTER_ID, properties_text

TOOL: Final = "kafka.tools.StorageTool"
TOOL_SECONDS: Final = 120.0
META_FILE: Final = "meta.properties"
METADATA_LOG: Final = "__cluster_metadata-0"


def format_copy(
    jars: KafkaJars, data: Path, *, node_id: int, cluster_id: str, version: str, is_controller: bool
) -> None:
    """Format the log directory of a node of a static quorum; `version` is the metadata.version,
    empty for that of the release.

    Raises ApacheKafkaMissing if the tool refuses it.
    """
    template = formatted_template(jars, version)
    data.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(template, data)
    if not is_controller:
        shutil.rmtree(data / METADATA_LOG, ignore_errors=True)
    file = data / META_FILE
    lines = [
        line
        for line in file.read_text().splitlines()
        if not line.startswith(("node.id=", "directory.id=", "cluster.id=", "#"))
    ]
    file.write_text("\n".join([*lines, f"cluster.id={cluster_id}", f"node.id={node_id}", ""]))


def format_voter(
    jars: KafkaJars,
    file: Path,
    properties: dict[str, str],
    *,
    node_id: int,
    cluster_id: str,
    version: str,
    first_voters: str,
) -> None:
    """Format the log directory of a controller of a dynamic quorum.

    `first_voters` are id@host:port:directory-id of each. Raises ApacheKafkaMissing if the tool
    refuses it, as before 3.9.
    """
    is_first = any(each.startswith(f"{node_id}@") for each in first_voters.split(","))
    more = ["--initial-controllers", first_voters] if is_first else ["--no-initial-controllers"]
    run_tool(jars, file, properties, cluster_id, version, more)


def formatted_template(jars: KafkaJars, version: str = "") -> Path:
    """Return a formatted directory to copy, made once per release and metadata.version.

    Raises ApacheKafkaMissing if the tool refuses it.
    """
    formatted = jars.directory / f"formatted{version and '-'}{version}"
    if not formatted.exists():
        fresh = Path(tempfile.mkdtemp(dir=jars.directory))
        data = fresh / "data"
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://127.0.0.1:9092,{CONTROLLER_LISTENER}://127.0.0.1:9093",
            "listener.security.protocol.map": (
                f"PLAINTEXT:PLAINTEXT,{CONTROLLER_LISTENER}:PLAINTEXT"
            ),
            "controller.listener.names": CONTROLLER_LISTENER,
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "log.dirs": str(data),
        }
        try:
            run_tool(jars, fresh / "server.properties", properties, DEFAULT_CLUSTER_ID, version)
            data.rename(formatted)
        except OSError:
            assert formatted.exists(), "a concurrent process may have formatted it first"
        finally:
            shutil.rmtree(fresh)
    return formatted


def run_tool(
    jars: KafkaJars,
    file: Path,
    properties: dict[str, str],
    cluster_id: str,
    version: str,
    more: Sequence[str] = (),
) -> None:
    """Format the `log.dirs` of properties, which are written to a file.

    Raises ApacheKafkaMissing if the tool refuses them.
    """
    file.write_text(properties_text(properties))
    release = ["--release-version", version] if version else []
    command = jars.command(
        TOOL, "format", "--cluster-id", cluster_id, "--config", str(file), *release, *more
    )
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode != 0:
        words = (done.stderr + done.stdout).strip().splitlines() or ["it printed nothing"]
        raise ApacheKafkaMissing(
            f"the storage tool of Apache Kafka {jars.release} refuses to format: {words[0]}"
        )

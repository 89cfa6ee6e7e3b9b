"""How a broker takes part in the controller quorum: it replicates the metadata log as an observer,
and sends heartbeats to the leader.

KRaft brokers depend on both; brokers that migrate from ZooKeeper run both in addition (KIP-866).
Source: org.apache.kafka.raft.KafkaRaftClient (observers), kafka.server.BrokerLifecycleManager.
"""

from collections.abc import Mapping
from typing import Final

from kraftsim.metadata.metadata_publisher import MetadataPublisher
from kraftsim.raft.quorum_settings import raft_settings
from kraftsim.raft.raft_node import RaftNode
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.controller_channel import ActiveController, ControllerChannel
from kraftsim.server.identity import load_metadata_identity
from kraftsim.server.outbound import VersionRange
from kraftsim.server.shell import NodeShell
from protocol.malformed import MalformedMessage

HEARTBEAT_SHARE: Final = 2
"""A heartbeat times out after half a session timeout, so that the next one is still in time."""


def heartbeat_channel(
    shell: NodeShell, controller: ActiveController, own_versions: Mapping[int, VersionRange]
) -> ControllerChannel:
    """Return the channel for the broker's registration and heartbeats."""
    return ControllerChannel(
        shell,
        name="heartbeat",
        controller=controller,
        request_timeout_ms=shell.config.controller_socket_timeout_ms,
        retry_timeout_ms=shell.config.broker_session_timeout_ms // HEARTBEAT_SHARE,
        own_versions=own_versions,
    )


async def loaded_observer(
    shell: NodeShell,
    directory_id: bytes,
    own_versions: Mapping[int, VersionRange],
    listener: MetadataPublisher,
    *,
    has_pre_vote: bool,
) -> RaftNode:
    """Return a replica with the broker's metadata log loaded.

    Raises ConfigError or OSError; everything is closed then.
    """
    config = shell.config
    raft = RaftNode(
        shell,
        directory_id=await load_metadata_identity(shell.world, config, directory_id),
        own_versions=own_versions,
        settings=raft_settings(config, has_pre_vote=has_pre_vote, always_flushes=False),
        listener=listener,
    )
    try:
        await raft.load()
    except BaseException as failure:
        raft.close()
        if isinstance(failure, MalformedMessage):
            raise ConfigError(
                f"{config.metadata_key}: the metadata log in {config.metadata_directory} "
                f"contains unsupported records: {failure}"
            ) from failure
        raise
    return raft

"""How a broker takes part in the quorum of controllers: it copies the metadata log without a vote, and sends heartbeats to whoever leads.

Brokers of KRaft live by both; brokers that migrate from ZooKeeper have both beside everything else (KIP-866).
Source: org.apache.kafka.raft.KafkaRaftClient (observers), kafka.server.BrokerLifecycleManager.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kraftsim.node.broker.metadata_publisher import MetadataPublisher
from kraftsim.node.config_keys import ConfigError
from kraftsim.node.controller_channel import ActiveController, ControllerChannel
from kraftsim.node.identity import load_metadata_identity
from kraftsim.node.outbound import VersionRange
from kraftsim.node.raft.quorum_settings import raft_settings
from kraftsim.node.raft.raft_node import RaftNode
from protocol.malformed import MalformedMessage

if TYPE_CHECKING:
    from kraftsim.node.broker.broker import Broker

HEARTBEAT_SHARE: Final = 2
"""A heartbeat is given up after half a session: the next one still comes in time."""


def heartbeat_channel(broker: "Broker", controller: ActiveController, own_versions: Mapping[int, VersionRange]) -> ControllerChannel:
    """Return the channel on which the broker keeps itself alive."""
    return ControllerChannel(
        broker.shell,
        name="heartbeat",
        controller=controller,
        request_timeout_ms=broker.config.controller_socket_timeout_ms,
        retry_timeout_ms=broker.config.broker_session_timeout_ms // HEARTBEAT_SHARE,
        own_versions=own_versions,
    )


async def loaded_observer(broker: "Broker", directory_id: bytes, own_versions: Mapping[int, VersionRange], listener: MetadataPublisher) -> RaftNode:
    """Return a replica that has read back what the broker has of the metadata log. Raises ConfigError, OSError kinds; then nothing is left open."""
    config = broker.config
    raft = RaftNode(
        broker.shell,
        directory_id=await load_metadata_identity(broker.world, config, directory_id),
        own_versions=own_versions,
        settings=raft_settings(config, has_pre_vote=broker.parts.has_pre_vote, always_flushes=False),
        listener=listener,
    )
    try:
        await raft.load()
    except BaseException as failure:
        raft.close()
        if isinstance(failure, MalformedMessage):
            raise ConfigError(
                f"{config.metadata_key}: the metadata log in {config.metadata_directory} holds what is not understood here: {failure}"
            ) from failure
        raise
    return raft

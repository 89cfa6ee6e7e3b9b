"""Where a node keeps the metadata log and all that belongs to the quorum: beside everything else, unless `metadata.log.dir` says otherwise.

Source: kafka.server.KafkaConfig.metadataLogDir, kafka.raft.KafkaRaftManager.
"""

from kraftsim.node.config import NodeConfig
from kraftsim.world.interface import World


def metadata_world(world: World, config: NodeConfig) -> World:
    """Return the world of a node with the directory of the metadata log as its disk."""
    return world.elsewhere(config.metadata_directory) if config.has_metadata_directory else world

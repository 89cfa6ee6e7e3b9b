"""The directory of the metadata log and quorum state: the first log directory, unless
`metadata.log.dir` is set.

Source: kafka.server.KafkaConfig.metadataLogDir, kafka.raft.KafkaRaftManager.
"""

from kraftsim.server.config import NodeConfig
from kraftsim.world.interface import World


def metadata_world(world: World, config: NodeConfig) -> World:
    """Return the world of a node with the metadata log directory as its disk."""
    return world.elsewhere(config.metadata_directory) if config.has_metadata_directory else world

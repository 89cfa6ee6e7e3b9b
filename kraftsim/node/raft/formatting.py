"""The first voters of a quorum whose voters stand in the log: each of them begins with the same snapshot that names them all.

Kafka writes it when a directory is formatted; nodes here format an empty directory when they start, if they are told who the first voters are.
Source: KIP-853, org.apache.kafka.metadata.storage.Formatter, kafka-storage format --initial-controllers and --standalone.
"""

from kraftsim.core.raft.voter_set import Address, ReplicaKey, VoterNode, VoterSet
from kraftsim.node.config import NodeConfig
from kraftsim.node.config_keys import ConfigError
from kraftsim.node.identity import check_formattable
from kraftsim.node.raft.metadata_directory import metadata_world
from kraftsim.node.raft.snapshot_files import write_format_snapshot
from kraftsim.world.interface import World
from protocol.disk.file_names import META_PROPERTIES
from protocol.disk.meta_properties import MetaProperties, build_meta_properties


async def format_if_new(world: World, config: NodeConfig) -> None:
    """Make an empty metadata directory that of a first voter, if this node is one. Raises ConfigError, OSError.

    meta.properties is written last: whoever finds it finds the snapshot, too.
    """
    world = metadata_world(world, config)
    if not config.initial_controllers or world.disk.exists(META_PROPERTIES):
        return
    if config.controller_quorum_voters:
        raise ConfigError("kraftsim.initial.controllers: the voters stand in controller.quorum.voters already")
    own = next((each for each in config.initial_controllers if each.voter.node_id == config.node_id), None)
    if own is None:
        return
    check_formattable(world, config, f"{config.metadata_key}: {config.metadata_directory}")
    await write_format_snapshot(world.disk, first_voters(config), world.clock.wall_ms())
    meta = MetaProperties(cluster_id=config.cluster_id, node_id=config.node_id, directory_id=own.directory_id)
    await world.disk.replace(META_PROPERTIES, build_meta_properties(meta))


def first_voters(config: NodeConfig) -> VoterSet:
    """Return the voters that the snapshot names."""
    listener = config.controller_listener_names[0]
    return VoterSet(
        VoterNode(
            key=ReplicaKey(each.voter.node_id, each.directory_id),
            endpoints={listener: Address(each.voter.host, each.voter.port)},
        )
        for each in config.initial_controllers
    )

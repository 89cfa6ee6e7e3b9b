"""Quorum settings from the node's properties: voters, timeouts, and fetch sizes; and the
formatting of the metadata directory, where the properties name the initial voters.

Source: org.apache.kafka.raft.QuorumConfig.
"""

from kraftsim.raft.metadata_store import write_format_snapshot
from kraftsim.raft.rules_settings import RaftSettings
from kraftsim.raft.rules_voters import Address, ReplicaKey, VoterNode, VoterSet, static_voter_set
from kraftsim.server.config import NodeConfig
from kraftsim.server.config_keys import ConfigError
from kraftsim.server.identity import check_formattable, metadata_world
from kraftsim.world.interface import World
from protocol.storage.file_names import META_PROPERTIES
from protocol.storage.text_files import MetaProperties, build_meta_properties


def static_voters(config: NodeConfig) -> VoterSet:
    """Return the voters in the properties; an empty set if the log contains them."""
    return static_voter_set(
        [
            (voter.node_id, Address(voter.host, voter.port))
            for voter in config.controller_quorum_voters
        ],
        config.controller_listener_names[0],
    )


def raft_settings(
    config: NodeConfig, *, has_pre_vote: bool, always_flushes: bool = True
) -> RaftSettings:
    """Return the timeouts and sizes of the quorum from the properties."""
    return RaftSettings(
        election_timeout_ms=config.controller_quorum_election_timeout_ms,
        fetch_timeout_ms=config.controller_quorum_fetch_timeout_ms,
        election_backoff_max_ms=config.controller_quorum_election_backoff_max_ms,
        request_timeout_ms=config.controller_quorum_request_timeout_ms,
        retry_backoff_ms=config.controller_quorum_retry_backoff_ms,
        fetch_max_bytes=config.controller_quorum_fetch_max_bytes,
        fetch_snapshot_max_bytes=config.controller_quorum_fetch_snapshot_max_bytes,
        has_pre_vote=has_pre_vote,
        always_flushes=always_flushes,
    )


# --------------------------------------------------------------------------------------------------
# Formats the metadata directory of an initial voter (dynamic quorum): every initial voter starts
# with the same snapshot of the voter set
#
# Kafka writes it when kafka-storage formats a directory; nodes here format an empty directory at
# startup, if the initial controllers are configured.
# Source: KIP-853, org.apache.kafka.metadata.storage.Formatter, kafka-storage format
# --initial-controllers and --standalone.


async def format_if_new(world: World, config: NodeConfig) -> None:
    """Format an empty metadata directory, if this node is an initial voter.

    Raises ConfigError, OSError.

    meta.properties is written last, so a directory that has it also has the snapshot.
    """
    world = metadata_world(world, config)
    if not config.initial_controllers or world.disk.exists(META_PROPERTIES):
        return
    if config.controller_quorum_voters:
        raise ConfigError(
            "kraftsim.initial.controllers: controller.quorum.voters already defines the voters"
        )
    own = next(
        (each for each in config.initial_controllers if each.voter.node_id == config.node_id), None
    )
    if own is None:
        return
    check_formattable(world, config, f"{config.metadata_key}: {config.metadata_directory}")
    await write_format_snapshot(world.disk, first_voters(config), world.clock.wall_ms())
    meta = MetaProperties(
        cluster_id=config.cluster_id, node_id=config.node_id, directory_id=own.directory_id
    )
    await world.disk.replace(META_PROPERTIES, build_meta_properties(meta))


def first_voters(config: NodeConfig) -> VoterSet:
    """Return the voters in the snapshot."""
    listener = config.controller_listener_names[0]
    return VoterSet(
        VoterNode(
            key=ReplicaKey(each.voter.node_id, each.directory_id),
            endpoints={listener: Address(each.voter.host, each.voter.port)},
        )
        for each in config.initial_controllers
    )

"""The fault spaces of upgrades and migrations: a cluster whose nodes change their release or their
mode in the run.

A migration has both kinds of controllers: what ZooKeeper-mode brokers and KRaft brokers send, write
and experience is in one fault space, and the roles of an event may differ from phase to phase.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from kraftsim.lab.faults.fault import FAULTS, Between, DataLoss, OneOf
from kraftsim.lab.faults.fault_space import (
    BROKER_APIS,
    BROKER_MOMENTS,
    BROKER_STATES,
    BROKERS,
    CLIENTS,
    CONTROLLER_MOMENTS,
    CONTROLLER_STATES,
    CONTROLLERS,
    LEADER_AND_ISR,
    METADATA_FILES,
    PARTITION_FILES,
    PARTITION_MOMENTS,
    PRODUCER_ID_APIS,
    QUORUM_APIS,
    QUORUM_FILES,
    QUORUM_MOMENTS,
    QUORUM_SETTINGS,
    QUORUM_STATES,
    REPLICATION_APIS,
    REPLICATION_MOMENTS,
    SNAPSHOT_MOMENTS,
    UPDATE_METADATA,
    WRITER_APIS,
    ZOOKEEPER,
    ZOOKEEPER_FILES,
    ZOOKEEPER_MODE_APIS,
    ZOOKEEPER_MODE_MOMENTS,
    Api,
    FaultMoment,
    FaultSpace,
    Mix,
    cluster_fault_space,
)

UPGRADE_SETTINGS: Final[Mapping[str, Between | OneOf]] = {
    **QUORUM_SETTINGS,
    "metadata.log.max.record.bytes.between.snapshots": OneOf(("500", "2000", "8000")),
    "metadata.log.segment.bytes": OneOf(("1000", "4000", "20000")),
}
"""Without the session time-outs of brokers: a restart waits for the end of a session, which would
make an upgrade of twenty restarts as long as the longest time-out.
"""
DUAL_WRITE_APIS: Final = (
    Api(LEADER_AND_ISR, CONTROLLERS, BROKERS, 60),
    Api(UPDATE_METADATA, CONTROLLERS, BROKERS, 60),
)
"""A KRaft controller sends them to brokers that are still in ZooKeeper mode; StopReplica only for
topics that are deleted or moved during the migration.
"""
MIGRATION_MOMENTS: Final = (
    FaultMoment("MigrationDriverMoved", CONTROLLERS, 12),
    *(
        FaultMoment("MigrationDriverMoved", CONTROLLERS, 2, {"to_state": state})
        for state in (
            "WAIT_FOR_BROKERS",
            "BECOME_CONTROLLER",
            "ZK_MIGRATION",
            "SYNC_KRAFT_TO_ZK",
            "KRAFT_CONTROLLER_TO_BROKER_COMM",
            "DUAL_WRITE",
        )
    ),
    FaultMoment("ZookeeperControllerClaimed", CONTROLLERS, 2),
    FaultMoment("MigrationPieceCopied", CONTROLLERS, 3),
    FaultMoment("ZookeeperMetadataCopied", CONTROLLERS, 2),
    FaultMoment("ZnodesMirrored", CONTROLLERS, 30),
)


def upgrade_fault_space(
    *,
    controllers: int,
    brokers: int,
    clients: tuple[str, ...],
    apis: tuple[Api, ...],
    fault_seconds: float,
) -> FaultSpace:
    """Return the fault space of an upgrade in KRaft mode: a node may run another release for a
    while, as after an upgrade that was begun too early or undone.
    """
    return replace(
        cluster_fault_space(
            controllers=controllers,
            brokers=brokers,
            clients=clients,
            apis=apis,
            brokers_keep_records=True,
            brokers_replicate=True,
            fault_seconds=fault_seconds,
        ),
        settings=UPGRADE_SETTINGS,
        may_change_release=True,
        of_size=partial(
            upgrade_fault_space, clients=clients, apis=apis, fault_seconds=fault_seconds
        ),
    )


def migration_fault_space(
    *,
    controllers: int,
    brokers: int,
    clients: tuple[str, ...],
    fault_seconds: float,
    mix: Mix = Mix.EITHER,
) -> FaultSpace:
    """Return the fault space of a migration from ZooKeeper to KRaft.

    ZooKeeper and controllers flush before they answer, so they may lose power. Brokers may not: a
    record that no replica has flushed is lost with the power of several of them.

    No node changes its release by a fault: those that are drawn (4.0 and later) have no ZooKeeper
    mode, and refuse to start.
    """
    controller_names = tuple(f"controller-{101 + number}" for number in range(controllers))
    broker_names = tuple(f"broker-{1 + number}" for number in range(brokers))
    server, is_quorum = ("zookeeper-1",), controllers > 1
    return FaultSpace(
        hosts={
            CONTROLLERS: controller_names,
            BROKERS: broker_names,
            ZOOKEEPER: server,
            CLIENTS: clients,
        },
        links=(
            *(((CONTROLLERS, CONTROLLERS),) if is_quorum else ()),
            (CONTROLLERS, ZOOKEEPER),
            (CONTROLLERS, BROKERS),
            (BROKERS, ZOOKEEPER),
            (BROKERS, BROKERS),
            (CLIENTS, BROKERS),
        ),
        apis=(
            *(QUORUM_APIS if is_quorum else ()),
            *BROKER_APIS,
            *DUAL_WRITE_APIS,
            *ZOOKEEPER_MODE_APIS,
            *REPLICATION_APIS,
            *WRITER_APIS,
            *PRODUCER_ID_APIS,
        ),
        files=(
            *(QUORUM_FILES if is_quorum else METADATA_FILES),
            *ZOOKEEPER_FILES,
            *PARTITION_FILES,
        ),
        moments=_anywhere(
            (
                *MIGRATION_MOMENTS,
                *CONTROLLER_MOMENTS,
                *((*QUORUM_MOMENTS, *SNAPSHOT_MOMENTS) if is_quorum else ()),
                *BROKER_MOMENTS,
                *ZOOKEEPER_MODE_MOMENTS,
                *PARTITION_MOMENTS,
                *REPLICATION_MOMENTS,
            )
        ),
        lasting_states=(
            *CONTROLLER_STATES,
            *(QUORUM_STATES if is_quorum else ()),
            *BROKER_STATES,
        ),
        may_lose={
            DataLoss.UNFLUSHED: (*controller_names, *server),
            DataLoss.TRUST: controller_names,
        },
        settings=UPGRADE_SETTINGS,
        fault_ms=int(fault_seconds * 1000),
        has_zookeeper=True,
        mix=mix,
        of_size=partial(
            migration_fault_space, clients=clients, fault_seconds=fault_seconds, mix=mix
        ),
    )


def _anywhere(moments: tuple[FaultMoment, ...]) -> tuple[FaultMoment, ...]:
    """Mark the events that occur at several roles, so that none of them is taken for a moment of
    one role only.
    """
    return tuple(
        replace(moment, is_only=False)
        if len({each.role for each in moments if each.kind == moment.kind}) > 1
        else moment
        for moment in moments
    )


# --------------------------------------------------------------------------------------------------
# Tiered storage

TIERED_MOMENTS: Final = (
    FaultMoment("RemoteCopyStarted", BROKERS, 20),
    FaultMoment("RemoteCopyFinished", BROKERS, 20),
    FaultMoment("RemoteCopyFailed", BROKERS, 4),
    FaultMoment("LocalLogStartMoved", BROKERS, 30),
    FaultMoment("RebuiltFromRemote", BROKERS, 4),
    FaultMoment("RemoteRead", BROKERS, 20),
)


def tiered_fault_space(
    *,
    controllers: int,
    brokers: int,
    clients: tuple[str, ...],
    apis: tuple[Api, ...],
    fault_seconds: float,
    mix: Mix = Mix.EITHER,
    omits: tuple[str, ...] = (),
) -> FaultSpace:
    """Return the fault space of a KRaft cluster whose brokers share a remote store.

    The store loses nothing for good: a lost object is restored when it is healed, and until then
    each reader gets an error. It does not return the producer snapshot of another segment: nothing
    in the file says which segment it belongs to, so that no broker can notice, and a follower that
    is rebuilt from it accepts duplicates. And no node lists it, so that no listing is stale.
    """
    space = cluster_fault_space(
        controllers=controllers,
        brokers=brokers,
        clients=clients,
        apis=apis,
        brokers_keep_records=True,
        brokers_replicate=True,
        fault_seconds=fault_seconds,
    )
    return replace(
        space,
        moments=(*space.moments, *TIERED_MOMENTS),
        has_store=True,
        mix=mix,
        omits=("snapshot-of-another-segment", "stale-store-listing", *omits),
        of_size=partial(
            tiered_fault_space,
            clients=clients,
            apis=apis,
            fault_seconds=fault_seconds,
            mix=mix,
            omits=omits,
        ),
    )


DELAYS: Final = (
    *("slow-link", "heavy-tail", "bandwidth-cap", "clog", "torn-reads"),
    *("pause", "loop-stalls", "slow-cpu"),
    *("slow-disk", "slow-flush-tail", "stuck-flush"),
    *("clock-offset", "clock-jump-forward", "clock-jump-back", "clock-frozen", "clock-drift"),
    *("slow-store", "stale-store-listing"),
)
"""Kinds that delay something, and change nothing else."""


def all_but(*names: str) -> tuple[str, ...]:
    """Return the names of all other kinds of faults."""
    return tuple(kind.name for kind in FAULTS.all() if kind.name not in names)

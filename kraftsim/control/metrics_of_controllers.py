"""Metrics of coordinators, of controllers and of the metadata quorum.

Source: org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics,
org.apache.kafka.controller.metrics, org.apache.kafka.raft.internals.KafkaRaftMetrics (KIP-595).
"""

from collections.abc import Callable, Iterator
from typing import Final

from kraftsim.control.metrics_view import ClusterView, KafkaMetric, Labels, Row
from kraftsim.control.state.cluster_snapshot import PartitionStatus
from kraftsim.control.state.event_logs import NodeCounters


def _classic_groups(*states: str) -> Callable[[ClusterView], list[Row]]:
    return lambda view: [
        (
            name,
            {},
            sum(
                group.coordinator == node_id
                and group.type.lower() in ("", "classic")
                and (not states or group.state in states)
                for group in view.snapshot.groups
            ),
        )
        for name, node_id in view.brokers.items()
    ]


def _groups_of_type(kind: str) -> Callable[[ClusterView], list[Row]]:
    return lambda view: [
        (
            name,
            {},
            sum(
                group.coordinator == node_id and group.type.lower() == kind
                for group in view.snapshot.groups
            ),
        )
        for name, node_id in view.brokers.items()
    ]


def _per_controller(
    count: Callable[[ClusterView], float],
) -> Callable[[ClusterView], list[Row]]:
    """The same value from every controller, as in KRaft: all of them replay the metadata log."""
    return lambda view: [(name, {}, count(view)) for name in view.controllers]


def _active(view: ClusterView) -> list[Row]:
    active = {node.name for node in view.snapshot.nodes if node.is_active_controller}
    return [(name, {}, name in active) for name in view.controllers]


def _partitions(
    test: Callable[[PartitionStatus], bool] = lambda each: True,
) -> Callable[[ClusterView], float]:
    return lambda view: sum(
        test(each) for topic in view.snapshot.topics for each in topic.partitions
    )


def _brokers(*, fenced: bool) -> Callable[[ClusterView], float]:
    return lambda view: sum(
        "broker" in node.role and bool(node.is_fenced) is fenced for node in view.snapshot.nodes
    )


def _of_controllers(
    value: Callable[[NodeCounters], float],
) -> Callable[[ClusterView], list[Row]]:
    return lambda view: [
        (name, {}, value(view.counters[name])) for name in view.controllers if name in view.counters
    ]


def _raft(
    value: Callable[[ClusterView, int], tuple[Labels, float] | None],
) -> Callable[[ClusterView], Iterator[Row]]:
    """A row from every node that runs and has a replica of the metadata log."""

    def rows(view: ClusterView) -> Iterator[Row]:
        if view.snapshot.quorum is None:
            return
        known = {each.node_id for each in view.snapshot.quorum.replicas}
        for name, node_id in sorted({**view.brokers, **view.controllers}.items()):
            found = value(view, node_id) if node_id in known else None
            if found is not None:
                yield name, *found

    return rows


def _raft_state(view: ClusterView, node_id: int) -> tuple[Labels, float]:
    quorum = view.snapshot.quorum
    assert quorum is not None, "the caller has a quorum"
    is_voter = any(each.node_id == node_id and each.is_voter for each in quorum.replicas)
    state = "leader" if node_id == quorum.leader else "follower" if is_voter else "observer"
    return {"state": state}, 1


def _raft_log_end(view: ClusterView, node_id: int) -> tuple[Labels, float] | None:
    quorum = view.snapshot.quorum
    assert quorum is not None, "the caller has a quorum"
    end = next(each.log_end_offset for each in quorum.replicas if each.node_id == node_id)
    return None if end is None else ({}, end)


def _raft_value(
    value: Callable[[ClusterView], float],
) -> Callable[[ClusterView], Iterator[Row]]:
    return _raft(lambda view, node_id: ({}, value(view)))


def _quorum_number(name: str) -> Callable[[ClusterView], float]:
    return lambda view: float(getattr(view.snapshot.quorum, name))


def _voter_count(view: ClusterView) -> float:
    assert view.snapshot.quorum is not None, "the caller has a quorum"
    return sum(each.is_voter for each in view.snapshot.quorum.replicas)


def _observers(view: ClusterView, node_id: int) -> tuple[Labels, float] | None:
    quorum = view.snapshot.quorum
    assert quorum is not None, "the caller has a quorum"
    count = sum(not each.is_voter for each in quorum.replicas)
    return ({}, count) if node_id == quorum.leader else None


def _level(view: ClusterView) -> list[Row]:
    level = view.snapshot.metadata_version_level
    return (
        []
        if level is None
        else [(name, {}, level) for name in sorted({**view.brokers, **view.controllers})]
    )


GROUP_STATES: Final = ("Stable", "Empty", "Dead", "PreparingRebalance", "CompletingRebalance")
GROUP_TYPES: Final = ("classic", "consumer", "share", "streams")

COORDINATORS: Final = (
    KafkaMetric(
        name="kafka_coordinator_group_groupmetadatamanager_numgroups",
        bean="kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
        help="Classic groups that the broker coordinates",
        measured_from="ListGroups",
        rows=_classic_groups(),
    ),
    *(
        KafkaMetric(
            name=f"kafka_coordinator_group_groupmetadatamanager_numgroups{state.lower()}",
            bean=f"kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups{state}",
            help=f"Classic groups that the broker coordinates, in state {state}",
            measured_from="ListGroups v4, DescribeGroups",
            rows=_classic_groups(state),
        )
        for state in GROUP_STATES
    ),
    *(
        KafkaMetric(
            name=f"kafka_server_group_coordinator_metrics_protocol_{kind}_group_count",
            bean=f"kafka.server:type=group-coordinator-metrics,protocol={kind}",
            help=f"Groups of type {kind} that the broker coordinates",
            measured_from="ListGroups v5",
            rows=_groups_of_type(kind),
        )
        for kind in GROUP_TYPES
    ),
)

CONTROLLERS: Final = (
    KafkaMetric(
        name="kafka_controller_kafkacontroller_activecontrollercount",
        bean="kafka.controller:type=KafkaController,name=ActiveControllerCount",
        help="1 on the active controller",
        measured_from="DescribeQuorum; Metadata in ZooKeeper mode",
        rows=_active,
    ),
    KafkaMetric(
        name="kafka_controller_kafkacontroller_activebrokercount",
        bean="kafka.controller:type=KafkaController,name=ActiveBrokerCount",
        help="Registered brokers that are not fenced",
        measured_from="Metadata",
        rows=_per_controller(_brokers(fenced=False)),
    ),
    KafkaMetric(
        name="kafka_controller_kafkacontroller_fencedbrokercount",
        bean="kafka.controller:type=KafkaController,name=FencedBrokerCount",
        help="Registered brokers that are fenced",
        measured_from="DescribeCluster v2, or nodes that are not in Metadata",
        rows=_per_controller(_brokers(fenced=True)),
    ),
    KafkaMetric(
        name="kafka_controller_kafkacontroller_globaltopiccount",
        bean="kafka.controller:type=KafkaController,name=GlobalTopicCount",
        help="Topics",
        measured_from="Metadata",
        rows=_per_controller(lambda view: len(view.snapshot.topics)),
    ),
    KafkaMetric(
        name="kafka_controller_kafkacontroller_globalpartitioncount",
        bean="kafka.controller:type=KafkaController,name=GlobalPartitionCount",
        help="Partitions",
        measured_from="Metadata",
        rows=_per_controller(_partitions()),
    ),
    KafkaMetric(
        name="kafka_controller_kafkacontroller_offlinepartitionscount",
        bean="kafka.controller:type=KafkaController,name=OfflinePartitionsCount",
        help="Partitions without a leader",
        measured_from="Metadata",
        rows=_per_controller(_partitions(lambda each: each.leader is None)),
    ),
    KafkaMetric(
        name="kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        bean="kafka.controller:type=KafkaController,name=PreferredReplicaImbalanceCount",
        help="Partitions whose leader is not their first replica",
        measured_from="Metadata",
        rows=_per_controller(_partitions(lambda each: each.leader != each.replicas[0])),
    ),
    KafkaMetric(
        name="kafka_controller_kafkacontroller_timedoutbrokerheartbeatcount",
        bean="kafka.controller:type=KafkaController,name=TimedOutBrokerHeartbeatCount",
        help="Brokers that this controller fenced because their heartbeats stopped",
        measured_from="event BrokerFenced",
        rows=_of_controllers(lambda each: each.timed_out_heartbeats),
    ),
    KafkaMetric(
        name="kafka_controller_controllerstats_uncleanleaderelections_total",
        bean="kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
        help="Leaders that this controller elected from outside the ISR",
        measured_from="event PartitionChanged with leader_recovery_state 1: since 3.2 (KIP-704)",
        rows=_of_controllers(lambda each: each.unclean_elections),
    ),
    KafkaMetric(
        name="kafka_server_metadataloader_currentmetadataversion",
        bean="kafka.server:type=MetadataLoader,name=CurrentMetadataVersion",
        help="Finalized level of metadata.version",
        measured_from="ApiVersions v3",
        rows=_level,
    ),
    KafkaMetric(
        name="kafka_server_raft_metrics_current_leader",
        bean="kafka.server:type=raft-metrics, current-leader",
        help="Leader of the metadata quorum",
        measured_from="DescribeQuorum; the same for all nodes",
        rows=_raft_value(_quorum_number("leader")),
    ),
    KafkaMetric(
        name="kafka_server_raft_metrics_current_epoch",
        bean="kafka.server:type=raft-metrics, current-epoch",
        help="Epoch of the metadata quorum",
        measured_from="DescribeQuorum; the same for all nodes",
        rows=_raft_value(_quorum_number("leader_epoch")),
    ),
    KafkaMetric(
        name="kafka_server_raft_metrics_high_watermark",
        bean="kafka.server:type=raft-metrics, high-watermark",
        help="High watermark of the metadata log",
        measured_from="DescribeQuorum; the leader's, for all nodes",
        rows=_raft_value(_quorum_number("high_watermark")),
    ),
    KafkaMetric(
        name="kafka_server_raft_metrics_log_end_offset",
        bean="kafka.server:type=raft-metrics, log-end-offset",
        help="End of the node's replica of the metadata log, as its leader knows it",
        measured_from="DescribeQuorum",
        rows=_raft(_raft_log_end),
    ),
    KafkaMetric(
        name="kafka_server_raft_metrics_current_state",
        bean="kafka.server:type=raft-metrics, current-state",
        help="1, with the state as label: leader, follower or observer",
        measured_from="DescribeQuorum",
        rows=_raft(_raft_state),
    ),
    KafkaMetric(
        name="kafka_server_raft_metrics_current_state_info",
        bean="kafka.server:type=raft-metrics, current-state",
        help="The same, as the JMX exporter before 1.0 names it",
        measured_from="DescribeQuorum",
        rows=_raft(_raft_state),
    ),
    KafkaMetric(
        name="kafka_server_raft_metrics_number_of_voters",
        bean="kafka.server:type=raft-metrics, number-of-voters",
        help="Voters of the metadata quorum",
        measured_from="DescribeQuorum",
        rows=_raft_value(_voter_count),
    ),
    KafkaMetric(
        name="kafka_server_raft_metrics_number_of_observers",
        bean="kafka.server:type=raft-metrics, number-of-observers",
        help="Observers of the metadata quorum, on its leader",
        measured_from="DescribeQuorum",
        rows=_raft(_observers),
    ),
)

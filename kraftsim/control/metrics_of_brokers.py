"""Metrics of brokers: their replicas, the partitions that they lead, and what clients sent them.

Source: kafka.server.ReplicaManager, kafka.cluster.Partition, kafka.server.BrokerTopicMetrics.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from kraftsim.control.metrics_view import ClusterView, KafkaMetric, Row
from kraftsim.control.state.cluster_snapshot import NodeCondition, PartitionStatus
from kraftsim.control.state.event_logs import NodeCounters, total
from protocol.api_keys import ApiKey
from protocol.codec.declaration import pascal_case

RUNNING: Final = 3
STARTING: Final = 1
"""Of kafka.server.BrokerState."""
REPLICA_CLIENT: Final = {"clientId": "Replica"}

# --------------------------------------------------------------------------------------------------
# Brokers: replicas and partitions


def _per_broker(count: Callable[[ClusterView, str], float]) -> Callable[[ClusterView], list[Row]]:
    return lambda view: [(name, {}, count(view, name)) for name in view.brokers]


def _leading(
    test: Callable[[ClusterView, str, PartitionStatus], bool],
) -> Callable[[ClusterView], list[Row]]:
    """Count the partitions that a broker leads and that pass a test."""
    return _per_broker(
        lambda view, name: sum(test(view, topic, each) for topic, each in view.led[name])
    )


def _each_led(
    value: Callable[[ClusterView, str, PartitionStatus], float | None],
) -> Callable[[ClusterView], Iterator[Row]]:
    """One row for each partition, from its leader; none where the value is unknown."""

    def rows(view: ClusterView) -> Iterator[Row]:
        for name, partitions in view.led.items():
            for topic, each in partitions:
                found = value(view, topic, each)
                if found is not None:
                    yield name, {"topic": topic, "partition": str(each.partition)}, found

    return rows


def _is_under_min_isr(view: ClusterView, topic: str, each: PartitionStatus) -> bool:
    return len(each.isr) < view.min_isr.get(topic, 0)


def _is_at_min_isr(view: ClusterView, topic: str, each: PartitionStatus) -> bool:
    return len(each.isr) == view.min_isr.get(topic, -1)


def _last_stable_lag(view: ClusterView, topic: str, each: PartitionStatus) -> float | None:
    if each.high_watermark is None or each.last_stable_offset is None:
        return None
    return max(0, each.high_watermark - each.last_stable_offset)


def _producer_ids(view: ClusterView) -> list[Row]:
    held = {
        name: {(topic, each.partition) for topic, each in partitions}
        for name, partitions in view.held.items()
    }
    places = Counter((each.topic, each.partition) for each in view.snapshot.producers)
    return [
        (name, {}, sum(count for place, count in places.items() if place in own))
        for name, own in held.items()
    ]


def _states(view: ClusterView) -> list[Row]:
    starting = {
        node.name for node in view.snapshot.nodes if node.condition is NodeCondition.STARTING
    }
    return [(name, {}, STARTING if name in starting else RUNNING) for name in view.brokers]


def _log_ends(view: ClusterView) -> Iterator[Row]:
    for name, counters in _of_brokers(view):
        if view.snapshot.unread_bytes:
            return
        for topic, each in view.held[name]:
            end = counters.log_ends.get((topic, each.partition))
            if end is not None:
                yield name, {"topic": topic, "partition": str(each.partition)}, end


def _max_lag(view: ClusterView) -> Iterator[Row]:
    names = {node_id: name for name, node_id in view.brokers.items()}
    for name, own in _of_brokers(view):
        if view.snapshot.unread_bytes:  # ends that were read at different times have no difference
            return
        own_id = view.brokers[name]
        lags = [0]
        for topic, each in view.held[name]:
            leader = None if each.leader in (None, own_id) else names.get(each.leader or 0)
            theirs = view.counters.get(leader or "")
            place = (topic, each.partition)
            if theirs is None or each.high_watermark is None or place not in own.log_ends:
                continue
            known = min(each.high_watermark, theirs.log_ends.get(place, 0))
            lags.append(known - own.log_ends[place])
        yield name, REPLICA_CLIENT, max(lags)


REPLICAS: Final = (
    KafkaMetric(
        name="kafka_server_replicamanager_leadercount",
        bean="kafka.server:type=ReplicaManager,name=LeaderCount",
        help="Partitions that the broker leads",
        measured_from="Metadata",
        rows=_per_broker(lambda view, name: len(view.led[name])),
    ),
    KafkaMetric(
        name="kafka_server_replicamanager_partitioncount",
        bean="kafka.server:type=ReplicaManager,name=PartitionCount",
        help="Partitions of which the broker has a replica",
        measured_from="Metadata",
        rows=_per_broker(lambda view, name: len(view.held[name])),
    ),
    KafkaMetric(
        name="kafka_server_replicamanager_underreplicatedpartitions",
        bean="kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
        help="Partitions that the broker leads with fewer in-sync replicas than replicas",
        measured_from="Metadata",
        rows=_leading(lambda view, topic, each: each.is_under_replicated),
    ),
    KafkaMetric(
        name="kafka_server_replicamanager_underminisrpartitioncount",
        bean="kafka.server:type=ReplicaManager,name=UnderMinIsrPartitionCount",
        help="Partitions that the broker leads with fewer in-sync replicas than "
        "min.insync.replicas",
        measured_from="Metadata, DescribeConfigs",
        rows=_leading(_is_under_min_isr),
    ),
    KafkaMetric(
        name="kafka_server_replicamanager_atminisrpartitioncount",
        bean="kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount",
        help="Partitions that the broker leads with just min.insync.replicas in-sync replicas",
        measured_from="Metadata, DescribeConfigs",
        rows=_leading(_is_at_min_isr),
    ),
    KafkaMetric(
        name="kafka_server_replicamanager_offlinereplicacount",
        bean="kafka.server:type=ReplicaManager,name=OfflineReplicaCount",
        help="Replicas of the broker in log directories that are offline",
        measured_from="Metadata v5",
        rows=_per_broker(
            lambda view, name: sum(
                view.brokers[name] in each.offline for _, each in view.held[name]
            )
        ),
    ),
    KafkaMetric(
        name="kafka_server_replicamanager_produceridcount",
        bean="kafka.server:type=ReplicaManager,name=ProducerIdCount",
        help="Producer ids in the producer state of the broker's replicas",
        measured_from="DescribeProducers, of the partitions' leaders",
        rows=_producer_ids,
    ),
    KafkaMetric(
        name="kafka_server_replicamanager_isrshrinks_total",
        bean="kafka.server:type=ReplicaManager,name=IsrShrinksPerSec",
        help="Times that the leader took replicas out of the ISR",
        measured_from="events IsrChangeAsked, IsrChanged",
        rows=lambda view: [(name, {}, each.isr_shrinks) for name, each in _of_brokers(view)],
    ),
    KafkaMetric(
        name="kafka_server_replicamanager_isrexpands_total",
        bean="kafka.server:type=ReplicaManager,name=IsrExpandsPerSec",
        help="Times that the leader added replicas to the ISR",
        measured_from="events IsrChangeAsked, IsrChanged",
        rows=lambda view: [(name, {}, each.isr_expands) for name, each in _of_brokers(view)],
    ),
    KafkaMetric(
        name="kafka_server_replicafetchermanager_maxlag",
        bean="kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=Replica",
        help="Records between the leader's high watermark and the end of the follower's log, the "
        "most of all partitions",
        measured_from="ListOffsets; events BatchAppended, BatchReplicated, PartitionTruncated",
        rows=_max_lag,
    ),
    KafkaMetric(
        name="kafka_server_kafkaserver_brokerstate",
        bean="kafka.server:type=KafkaServer,name=BrokerState",
        help="1: starting, 3: running",
        measured_from="the process, or Metadata",
        rows=_states,
    ),
    KafkaMetric(
        name="kafka_cluster_partition_underreplicated",
        bean="kafka.cluster:type=Partition,name=UnderReplicated,topic=,partition=",
        help="1 if the partition has fewer in-sync replicas than replicas",
        measured_from="Metadata; from the leader only",
        rows=_each_led(lambda view, topic, each: each.is_under_replicated),
    ),
    KafkaMetric(
        name="kafka_cluster_partition_insyncreplicascount",
        bean="kafka.cluster:type=Partition,name=InSyncReplicasCount,topic=,partition=",
        help="In-sync replicas of the partition",
        measured_from="Metadata; from the leader only",
        rows=_each_led(lambda view, topic, each: len(each.isr)),
    ),
    KafkaMetric(
        name="kafka_cluster_partition_replicascount",
        bean="kafka.cluster:type=Partition,name=ReplicasCount,topic=,partition=",
        help="Replicas of the partition",
        measured_from="Metadata; from the leader only",
        rows=_each_led(lambda view, topic, each: len(each.replicas)),
    ),
    KafkaMetric(
        name="kafka_cluster_partition_underminisr",
        bean="kafka.cluster:type=Partition,name=UnderMinIsr,topic=,partition=",
        help="1 if the partition has fewer in-sync replicas than min.insync.replicas",
        measured_from="Metadata, DescribeConfigs; from the leader only",
        rows=_each_led(_is_under_min_isr),
    ),
    KafkaMetric(
        name="kafka_cluster_partition_atminisr",
        bean="kafka.cluster:type=Partition,name=AtMinIsr,topic=,partition=",
        help="1 if the partition has just min.insync.replicas in-sync replicas",
        measured_from="Metadata, DescribeConfigs; from the leader only",
        rows=_each_led(_is_at_min_isr),
    ),
    KafkaMetric(
        name="kafka_cluster_partition_laststableoffsetlag",
        bean="kafka.cluster:type=Partition,name=LastStableOffsetLag,topic=,partition=",
        help="Records between the last stable offset and the high watermark",
        measured_from="ListOffsets, both isolation levels; from the leader only",
        rows=_each_led(_last_stable_lag),
    ),
    KafkaMetric(
        name="kafka_log_log_logstartoffset",
        bean="kafka.log:type=Log,name=LogStartOffset,topic=,partition=",
        help="First offset of the log",
        measured_from="ListOffsets; from the leader only",
        rows=_each_led(lambda view, topic, each: each.log_start_offset),
    ),
    KafkaMetric(
        name="kafka_log_log_logendoffset",
        bean="kafka.log:type=Log,name=LogEndOffset,topic=,partition=",
        help="End of the replica's log",
        measured_from="events BatchAppended, BatchReplicated, MarkerAppended, LogRecovered, "
        "PartitionTruncated",
        rows=_log_ends,
    ),
    KafkaMetric(
        name="kafka_log_logmanager_offlinelogdirectorycount",
        bean="kafka.log:type=LogManager,name=OfflineLogDirectoryCount",
        help="Log directories that are offline",
        measured_from="event LogDirectoryFailed, since the node's start",
        rows=lambda view: [
            (name, {}, each.offline_directories) for name, each in _of_brokers(view)
        ],
    ),
)


# --------------------------------------------------------------------------------------------------
# Brokers: what they were sent


def _of_brokers(view: ClusterView) -> Iterator[tuple[str, NodeCounters]]:
    return ((name, view.counters[name]) for name in view.brokers if name in view.counters)


def _by_topic(
    counter: Callable[[NodeCounters], Mapping[str, int]],
) -> Callable[[ClusterView], Iterator[Row]]:
    """One row for all topics, and one for each."""

    def rows(view: ClusterView) -> Iterator[Row]:
        for name, each in _of_brokers(view):
            counts = counter(each)
            yield name, {}, total(counts)
            for topic, count in sorted(counts.items()):
                yield name, {"topic": topic}, count

    return rows


def _requests(view: ClusterView) -> Iterator[Row]:
    for name, each in view.counted():
        for (key, version), count in sorted(each.requests.items()):
            request = pascal_case(ApiKey(key).name.lower()) if key in _API_KEYS else str(key)
            yield name, {"request": request, "version": str(version)}, count


_API_KEYS: Final = frozenset(int(key) for key in ApiKey)

TRAFFIC: Final = (
    KafkaMetric(
        name="kafka_server_brokertopicmetrics_messagesin_total",
        bean="kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec",
        help="Records that the broker appended as leader, transaction markers included",
        measured_from="events BatchAppended, MarkerAppended",
        rows=_by_topic(lambda each: each.messages_in),
    ),
    KafkaMetric(
        name="kafka_server_brokertopicmetrics_bytesin_total",
        bean="kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec",
        help="Bytes of batches that the broker appended as leader, without transaction markers",
        measured_from="event BatchAppended",
        rows=_by_topic(lambda each: each.bytes_in),
    ),
    KafkaMetric(
        name="kafka_server_brokertopicmetrics_totalproducerequests_total",
        bean="kafka.server:type=BrokerTopicMetrics,name=TotalProduceRequestsPerSec",
        help="Attempts to append to a partition",
        measured_from="events BatchAppended, DuplicateAnswered, ProduceRefused",
        rows=_by_topic(lambda each: each.produce_requests),
    ),
    KafkaMetric(
        name="kafka_server_brokertopicmetrics_failedproducerequests_total",
        bean="kafka.server:type=BrokerTopicMetrics,name=FailedProduceRequestsPerSec",
        help="Attempts to append to a partition that were answered with an error",
        measured_from="event ProduceRefused",
        rows=_by_topic(lambda each: each.failed_produce_requests),
    ),
    KafkaMetric(
        name="kafka_network_requestmetrics_requests_total",
        bean="kafka.network:type=RequestMetrics,name=RequestsPerSec,request=,version=",
        help="Requests by API and version",
        measured_from="event FrameReceived: nodes write it with kraftsim.frame.events=true only",
        rows=_requests,
    ),
)

"""Events as sentences, for the report of a violation: one template per kind that an invariant
watches, and for those that often lie between its witnesses.

A template names fields in braces. `{is_commit?commit|abort}` selects by a flag,
`{record_count#record}` counts, `{first_offset~last_offset~offset}` is one offset or a range, and
`{error_code}` is the name of the error. A kind without a template is described by its fields.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from protocol.errors import ErrorCode

Value: TypeAlias = int | str | bool

_PLACE: Final = re.compile(r"\{(\w+)(?:\?([^|{}]*)\|([^{}]*)|#(\w+)|~(\w+)~(\w+))?\}")
_ERROR_NAMES: Final = {int(error): error.name for error in ErrorCode}
_OFFSETS: Final = "{first_offset~last_offset~offset}"
_BATCH: Final = f"{_OFFSETS} of {{topic}}-{{partition}}"
_PRODUCER: Final = "producer id {producer_id}, epoch {producer_epoch}"
_GROUP: Final = "group {group_id} for {topic}-{partition}"
_NODE_IDS: Final = ("leader", "leader_id", "voted_id")
NO_NODE: Final = -1
_TEMPLATES: Final = {
    "ApplicationEnded": "application {application} ended: {reason}",
    "ApplicationStarted": "application {application} started ({function})",
    "BatchAppended": "{node} appended {record_count#record} as leader in epoch {leader_epoch}: "
    f"{_BATCH}, {_PRODUCER}, {{base_sequence~last_sequence~sequence}}",
    "BatchReplicated": f"{{node}} replicated {_BATCH} from the leader of epoch {{leader_epoch}}, "
    f"{_PRODUCER}, sequence {{base_sequence}}",
    "BranchRead": "client {client_id} read the total {total} of branch {branch} after transfer "
    "{transfer}, of {expected_total}",
    "BrokerEpochReceived": "{node} was registered with broker epoch {broker_epoch}",
    "BrokerFenced": "{node} fenced broker {broker_id} (broker epoch {broker_epoch}): {reason}",
    "BrokerRegistered": "{node} registered broker {broker_id} with broker epoch {broker_epoch}, "
    "{fenced?fenced|already unfenced}, for incarnation {incarnation_id}",
    "BrokerUnfenced": "{node} unfenced broker {broker_id} (broker epoch {broker_epoch})",
    "CheckQuorumFailed": "{node} resigned as leader of epoch {leader_epoch}: {reachable_count} of "
    "{voter_count} voters fetched",
    "ClientErrorsChecked": "from here on every error of a client must be retriable, or provoked",
    "ClientInitialized": f"client {{client_id}} received {_PRODUCER}",
    "ClientQuotaChanged": "{node} has the quota {key} of {entity}: {value} (removed: {is_removed})",
    "ClientStarted": "client {client_id} started ({library})",
    "ClientStopped": "client {client_id} stopped: {reason}",
    "ConfigChanged": "{node} has the configuration {name} of {resource_name}: {value} "
    "(removed: {is_removed})",
    "ConnectionClosed": "{node} saw connection {connection} with {peer} end ({reason})",
    "ConnectionOpened": "{node} accepted a connection from {peer} on {listener}",
    "ConsumerGroupEnded": "{node} ended consumer group {group_id}",
    "ControllerElected": "{node} became the active controller of epoch {leader_epoch}, which "
    "begins at offset {epoch_start_offset}",
    "ControllerResigned": "{node} is no longer the active controller of epoch {leader_epoch}: "
    "{reason}",
    "CoordinatedShareDeleted": "{node} deleted the state of {topic_id}-{partition} in group "
    "{group_id}, at offset {record_offset} of __share_group_state-{coordinator_partition}",
    "CoordinatedShareLoaded": "{node} loaded the state of {topic_id}-{partition} in group "
    "{group_id} from offset {record_offset} of __share_group_state-{coordinator_partition}: "
    "snapshot {snapshot_epoch}, state epoch {state_epoch}, leader epoch {leader_epoch}, start "
    "offset {start_offset}",
    "CoordinatedShareStored": "{node} stored the state of {topic_id}-{partition} in group "
    "{group_id} ({cause}) at offset {record_offset} of __share_group_state-"
    "{coordinator_partition}: {is_snapshot?snapshot|update of snapshot} {snapshot_epoch}, state "
    "epoch {state_epoch}, leader epoch {leader_epoch}, start offset {start_offset}",
    "CopyExpected": "each record of {input_topic} must become one committed record of "
    "{output_topic}",
    "CopyRead": "client {client_id} read {topic} to its end",
    "DuplicateAnswered": "{node} answered a duplicate of "
    f"{{base_sequence~last_sequence~sequence}} of {_PRODUCER}, with offset {{first_offset}} of "
    "{topic}-{partition}",
    "ElectionLost": "{node} lost the election of epoch {leader_epoch}, number {defeats} in a row, "
    "and backs off for {pause_ms} ms",
    "ElectionOpened": "{node} started an election for epoch {leader_epoch}",
    "FactStated": "application {application} stated {name} of {key}: {value}",
    "FaultEnded": "the fault {fault} of {target} ended",
    "FaultInjected": "the fault {fault} was injected at {target}",
    "FaultTookEffect": "the fault {fault} of {target} took effect: {effect}",
    "FeatureLevelChanged": "{node} has {feature} at level {level}, after level {previous_level}",
    "FencedProducersExpected": "from here on transactions time out, and their producers are "
    "fenced by their epoch",
    "FinalBatch": f"the final log of {{broker}} has {_BATCH}, {_PRODUCER}, "
    "{base_sequence~last_sequence~sequence}",
    "FinalLog": "the final log of {topic}-{partition} on {broker} ends at offset {next_offset} and "
    "begins at {log_start_offset}",
    "FinalMarker": "the final log of {topic}-{partition} on {broker} has the "
    f"{{is_commit?commit|abort}} marker of {_PRODUCER} at offset {{offset}}, coordinator epoch "
    "{coordinator_epoch}",
    "FinalMetadata": "the metadata of {controller} up to offset {end_offset}, epoch {epoch}, read "
    "from offset {from_offset} on, has the digest {digest}",
    "FinalMetadataLog": "the final metadata log of {controller} ends at offset {end_offset} and "
    "begins at {first_offset}",
    "FinalOffset": "the final log of {broker} has the offset {committed_offset} of "
    f"{_GROUP}, written at offset {{log_offset}}",
    "FinalRecord": "the final log of {topic}-{partition} on {broker} has record {record_key} at "
    "offset {offset}",
    "FinalRemoteEpoch": "remote segment {segment_id} of {topic}-{partition} has "
    "{first_offset~last_offset~offset} of epoch {leader_epoch}",
    "FinalRemoteSegment": "remote segment {segment_id} of {topic}-{partition}, "
    "{first_offset~last_offset~offset}, is in state {status} and has the objects {objects}",
    "FinalTransaction": "the final log of {broker} has the state {status} of transactional id "
    f"{{transactional_id}}, {_PRODUCER}, at offset {{offset}}",
    "FirstBatchesOvertaken": "the first {records} records of {topic} are behind later ones, with "
    "which its leader began",
    "GroupRemoved": "{node} removed group {group_id} ({reason})",
    "GroupsLoaded": "{node} loaded {group_count#group} of __consumer_offsets-{partition} up to "
    "offset {next_offset}",
    "GroupsUnloaded": "{node} unloaded the groups of __consumer_offsets-{partition}",
    "HighWatermarkMoved": "{node} advanced the high watermark of the metadata log to "
    "{high_watermark} as {is_leader?leader|follower} in epoch {leader_epoch}",
    "HighWatermarkReported": "{node} reported the high watermark {high_watermark} of the metadata "
    "log to a follower, as leader of epoch {leader_epoch}",
    "HistoryAnomalyFound": "the history of {workload} has {anomaly} at {key}: {witness}",
    "HistoryChecked": "a checker read {operation_count#operation} of {workload}, model {model}",
    "InitProducerIdRefused": "{node} answered InitProducerId with {error_code}",
    "InitProducerIdSent": "client {client_id} sends InitProducerId for {transactional_id} with "
    f"{_PRODUCER}",
    "IsrChangeAsked": "{node} asked for the in-sync replicas {isr} of {topic}-{partition} in epoch "
    "{leader_epoch}",
    "IsrChanged": "{node} received the in-sync replicas {isr} of {topic}-{partition}, partition "
    "epoch {partition_epoch}",
    "LastStableOffsetMoved": "{node} moved the last stable offset of {topic}-{partition} to "
    "{offset}, with the high watermark at {high_watermark}",
    "LaterEpochAnswered": "{node} sent a request in epoch {asked_epoch} to node {asked_node_id}, "
    "which answered with epoch {leader_epoch} ({error_code})",
    "LeaderElected": "{node} became leader of {topic}-{partition} in epoch {leader_epoch}, with "
    "its log ending at offset {next_offset}",
    "LeaderFollowed": "{node} became follower of broker {leader_id} for {topic}-{partition} in "
    "epoch {leader_epoch}, with its log ending at offset {log_end_offset}",
    "LeaderLogHeld": "{node}, elected in epoch {leader_epoch}, holds offsets {first_offset} to "
    "before {end_offset} of epoch {epoch}",
    "LeadershipLost": "{node} is no longer leader of {topic}-{partition}; the epoch is "
    "{leader_epoch}",
    "LocalLogStartMoved": "{node} deleted local segments of {topic}-{partition}: its local log "
    "begins at offset {local_start_offset}",
    "LogRecovered": "{node} opened the log of {topic}-{partition}: it ends at offset "
    "{next_offset}, {truncated_bytes} bytes truncated",
    "LogStartMoved": "{node} moved the log start offset of {topic}-{partition} to "
    "{log_start_offset} ({reason})",
    "MarkerAppended": "{node} has the {is_commit?commit|abort} marker of "
    f"{_PRODUCER} at offset {{offset}} of {{topic}}-{{partition}}, as "
    "{on_leader?leader|follower}, coordinator epoch {coordinator_epoch}",
    "MarkerRefused": "{node} refused the {is_commit?commit|abort} marker of "
    f"{_PRODUCER} for {{topic}}-{{partition}}: {{error_code}}",
    "MemberEpochSet": "{node} set member {member_id} of group {group_id} to epoch {member_epoch}, "
    "after {previous_member_epoch}",
    "MemberStable": "member {member_id} of group {group_id} knows its assignment in generation "
    "{generation_id}: {assignment}",
    "MembershipLost": "client {client_id} lost its membership of group {group_id} in generation "
    "{generation_id} with {error_code}",
    "MetadataAppended": "{node} appended {first_offset~last_offset~offset} of the metadata "
    "log in epoch {leader_epoch}: {record_kinds}",
    "MetadataApplied": "{node} applied the metadata log up to offset {next_offset}",
    "MetadataChangeAnswered": "client {client_id} got the answer {error_code} for topic {topic}",
    "MetadataChangeSent": "client {client_id} sent a change of topic {topic}: {config_name} "
    "{config_value}",
    "MetadataCarriedOver": "the harness found {differences} differences between the log of "
    "{controller} and what ZooKeeper had before the migration: {what}",
    "MetadataCommitted": "{node} has the metadata log committed up to offset {high_watermark}, in "
    "epoch {leader_epoch}",
    "MetadataCopyForgotten": "{node} forgot its copy of the metadata",
    "MetadataFlushed": "{node} flushed the metadata log up to offset {end_offset}",
    "MetadataLogBegun": "the quorum {controllers} was formatted again: metadata log {metadata_log} "
    "begins at offset 0",
    "MetadataReplicated": "{node} replicated {first_offset~last_offset~offset} of the "
    "metadata log from the leader of epoch {leader_epoch}",
    "MetadataReverted": "{node} reverted uncommitted metadata to offset {to_offset}",
    "MetadataTruncated": "{node} truncated the metadata log to offset {end_offset}, as follower in "
    "epoch {leader_epoch}",
    "MetadataWritten": "{node} wrote {first_offset~last_offset~offset} of epoch {epoch} to "
    "the metadata log (CRC {crc})",
    "NodeFailed": "{node} failed: {reason}",
    "NodeReady": "{node} became ready",
    "NodeStarted": "{node} started as {role} {node_id}, release {release}",
    "NodeStopped": "{node} stopped: {reason}",
    "OffsetCommitted": "{node} has the offset {offset} committed by "
    f"{_GROUP}, written at offset {{record_offset}}"
    "{is_current?, which is the current one|, which a later one has replaced}",
    "OffsetForgotten": f"{{node}} removed the offset of {_GROUP} ({{reason}})",
    "OffsetLearned": "client {client_id} received the offset {offset} of "
    f"{_GROUP}: {{error_code}}",
    "OffsetLoaded": f"{{node}} loaded the offset {{offset}} of {_GROUP}, written at offset "
    "{record_offset}",
    "OffsetMaterialised": "{node} has the offset {offset} of "
    f"{_GROUP} committed by the marker at offset {{marker_offset}}, {_PRODUCER}",
    "OffsetReturned": f"{{node}} returned the offset {{offset}} of {_GROUP} "
    "({require_stable?stable offsets only|any offset}, {error_code})",
    "OffsetsAsked": "client {client_id} requested the committed offsets of group {group_id}",
    "OnlyRetriableErrorsExpected": "from here on clients must receive only retriable errors",
    "PartitionChanged": "{node} changed {topic}-{partition}: leader {leader}, leader epoch "
    "{leader_epoch}, in-sync replicas {isr}, partition epoch {partition_epoch}",
    "PartitionCreated": "{node} created {topic}-{partition}: leader {leader}, in-sync replicas "
    "{isr}",
    "PartitionGiven": "{node} gave {topic}-{partition} to member {member_id} of group {group_id} "
    "in epoch {member_epoch}{is_revoked?, to be revoked|}",
    "PartitionHighWatermarkMoved": "{node} advanced the high watermark of {topic}-{partition} to "
    "{high_watermark} as {is_leader?leader|follower} in epoch {leader_epoch}",
    "PartitionTaken": "member {member_id} of group {group_id} owns {topic}-{partition} in epoch "
    "{member_epoch}",
    "PartitionTruncated": "{node} truncated {topic}-{partition} from offset {former_end_offset} to "
    "{log_end_offset} as follower in epoch {leader_epoch}; its high watermark was {high_watermark}",
    "PendingOffsetAdded": "{node} has the pending offset {offset} of "
    f"{_GROUP}, {_PRODUCER}, written at offset {{record_offset}}",
    "PendingOffsetDropped": "{node} dropped the pending offset {offset} of "
    f"{_GROUP}: {_PRODUCER} aborted at offset {{marker_offset}}",
    "PhaseBegan": "phase {phase} began",
    "ProduceRefused": "{node} refused a batch for {topic}-{partition} with {error_code}: "
    f"{_PRODUCER}, sequence {{base_sequence}}",
    "ProducerFenced": f"{{node}} fenced {_PRODUCER} of transactional id {{transactional_id}} in "
    "{api}",
    "ProducerIdBlockAllocated": "{node} allocated the producer ids {first_producer_id} to before "
    "{next_producer_id} to broker {broker_id} (broker epoch {broker_epoch}), by the {given_by}",
    "ProducerIdBlockReceived": "{node} received the producer ids {first_producer_id} to before "
    "{next_producer_id}",
    "ProducerIdBlockRefused": "{node} received no block of producer ids: {error_code}",
    "ProducerIdBlockRequested": "{node} requested a block of producer ids with broker epoch "
    "{broker_epoch}",
    "ProducerIdReturned": f"{{node}} returned {_PRODUCER}, {{fresh?a new id|an id that the "
    "producer had before}",
    "ProducerIdSpent": "{node} took producer id {producer_id} for a {reason} ({transactional_id})",
    "ProducerSnapshotTaken": "{node} took a producer snapshot of {topic}-{partition} at offset "
    "{next_offset}; its latest batch ends at {last_offset}",
    "ProducerStateCompared": "{node} compared the state of {producer_count#producer} of "
    "{topic}-{partition} at offset {next_offset}, digest {digest}",
    "ProducerStateExpired": "{node} expired the state of producer id {producer_id} in "
    "{topic}-{partition}",
    "QuotaInEffect": "{node} enforces the quota {key} of {entity}: {value}",
    "QuorumStateStored": "{node} stored its quorum state: epoch {leader_epoch}, leader "
    "{leader_id}, vote for {voted_id}",
    "QuorumTimersSet": "{node} started with a fetch time-out of {fetch_timeout_ms} ms and an "
    "election time-out of {election_timeout_ms} ms",
    "RaftRoleChanged": "{node} became {role} in epoch {leader_epoch}, leader {leader_id}, vote for "
    "{voted_id}",
    "RecordAcknowledged": "client {client_id} received the acknowledgement of record {record_key} "
    "at offset {offset} of {topic}-{partition}",
    "RecordFailed": "record {record_key} of client {client_id} failed in {topic}-{partition}: "
    "{error_code}",
    "RecordRead": "client {client_id} read record {record_key} at offset {offset} of "
    "{topic}-{partition} ({is_read_committed?read_committed|read_uncommitted})",
    "RecordReportedDuplicate": "client {client_id} received DUPLICATE_SEQUENCE_NUMBER for record "
    f"{{record_key}} in {{topic}}-{{partition}}, {_PRODUCER}, sequence {{base_sequence}}",
    "RecordSent": "client {client_id} sent record {record_key} to {topic}-{partition}",
    "RemoteCopyFinished": "{node} copied {first_offset~last_offset~offset} of "
    "{topic}-{partition} to the remote store",
    "ReplicaInSync": "{broker} is in sync for {topic}-{partition} after all faults were healed",
    "RequestRefused": "{node} refused a request: API key {api_key}, version {api_version}: "
    "{reason}",
    "RunStarted": "the scenario {scenario} began with seed {seed}",
    "SegmentsCleaned": "{node} compacted offsets {first_offset} to before {next_offset} of "
    "{topic}-{partition}",
    "Settled": "{what} {is_settled?settled|had not settled} after {after_ms} ms (limit {limit_ms} "
    "ms)",
    "ShareAcknowledgementAnswered": "broker {leader_id} {is_answered?answered|did not answer} the "
    "acknowledgement {acknowledgement} of share consumer {client_id} for offsets {first_offset} to "
    "{last_offset} of {topic}-{partition}: error {error_code}",
    "ShareAcknowledgementSent": "share consumer {client_id} sent acknowledgement {acknowledgement} "
    "for offsets {first_offset} to {last_offset} of {topic}-{partition} to broker {leader_id}",
    "ShareFetchSent": "share consumer {client_id} asked broker {leader_id} for records of group "
    "{group_id}, request {request}",
    "ShareGroupEnded": "{node} ended share group {group_id}",
    "ShareLocksEnded": "{node}: no member of group {group_id} has acquired "
    f"{_OFFSETS} of {{topic}}-{{partition}} any more ({{reason}})",
    "ShareMemberEpochSet": "{node} set member {member_id} of share group {group_id} to epoch "
    "{member_epoch}, after {previous_member_epoch}",
    "ShareMemberSubscribed": "{node} recorded that member {member_id} of share group {group_id} "
    "subscribes to {topics}",
    "SharePartitionGiven": "{node} gave {topic}-{partition} to member {member_id} of share group "
    "{group_id} in epoch {member_epoch}",
    "SharePartitionInitialized": "{node} recorded that the state of {topic}-{partition} in group "
    "{group_id} is initialized",
    "SharePartitionLoaded": "{node} loaded {topic}-{partition} for group {group_id}, state epoch "
    "{state_epoch}, leader epoch {leader_epoch}, from offset {start_offset} on",
    "SharePartitionsRecorded": "{node} recorded the share-partitions of group {group_id}: "
    "{initialized_count} initialized, {initializing_count} not yet, {deleting_count} topics being "
    "deleted",
    "ShareRecordsAcquired": "{node} let {member_id} of group {group_id} acquire "
    f"{_OFFSETS} of {{topic}}-{{partition}}: delivery {{delivery_count}} of at most "
    "{delivery_count_max}",
    "ShareRecordsArchived": "{node} archived what was available for group {group_id} of "
    f"{_OFFSETS} of {{topic}}-{{partition}}",
    "ShareRecordsReceived": "share consumer {client_id} of group {group_id} received offsets "
    "{first_offset} to {last_offset} of {topic}-{partition} from broker {leader_id} for {lock_ms} "
    "ms, delivery {delivery_count}",
    "ShareStartOffsetMoved": "{node} moved the start offset of {topic}-{partition} for group "
    "{group_id} from {previous_offset} to {start_offset}",
    "ShareStateLoaded": "{node} loaded state {delivery_state}, delivery {delivery_count}, of "
    f"{_OFFSETS} of {{topic}}-{{partition}} for group {{group_id}}",
    "ShareStateStored": "state {delivery_state}, delivery {delivery_count}, of "
    f"{_OFFSETS} of {{topic}}-{{partition}} was stored for {{node}} and group {{group_id}}",
    "ShareStatesLoaded": "{node} loaded {state_count#state} of __share_group_state-{partition} up "
    "to offset {next_offset}",
    "SnapshotFetched": "{node} fetched the metadata snapshot of offset {end_offset}, epoch {epoch}",
    "SnapshotLoaded": "{node} loaded the metadata snapshot of offset {end_offset}, epoch {epoch}, "
    "in place of its log",
    "SnapshotWritten": "{node} wrote the metadata snapshot of offset {end_offset}, epoch {epoch}",
    "TopicConfigInEffect": "{node} leads {topic}-{partition} with the configuration {name} of its "
    "topic: {value}",
    "TopicCreated": "{node} created topic {topic} with {partition_count#partition}",
    "TopicDeleted": "{node} deleted topic {topic}",
    "TransactionAbortForced": "{node} aborts the transaction of {transactional_id}, "
    f"{_PRODUCER}: {{reason}}",
    "TransactionBegun": f"client {{client_id}} began transaction {{transaction}}, {_PRODUCER}",
    "TransactionChangeGivenUp": "{node} could not confirm a record of {transactional_id} at offset "
    "{offset}: {error_code}",
    "TransactionEndAsked": "client {client_id} {is_commit?commits|aborts} transaction "
    "{transaction}",
    "TransactionEnded": "transaction {transaction} of client {client_id} ended: {outcome} "
    f"({{error_code}}), {_PRODUCER}",
    "TransactionErred": "client {client_id} received {error_code} in transaction {transaction} "
    "({api}), {is_fatal?which is fatal|after which it must abort}",
    "TransactionFound": "client {client_id} found the open transaction of {transactional_id}: "
    f"{_PRODUCER}",
    "TransactionKept": "{node} gives {transactional_id} to producer "
    "{next_producer_id} epoch {next_producer_epoch}, and keeps the open transaction of "
    f"{_PRODUCER}",
    "TransactionPrepared": "client {client_id} prepared transaction {transaction}, "
    f"{_PRODUCER}",
    "DatabaseCommitted": "the database committed transaction {transaction} for client "
    f"{{client_id}}, {_PRODUCER}",
    "DatabaseCompared": "{key_count#key} are in the database and in topic {topic}; only in the "
    "database: {only_in_database}; only in the topic: {only_in_topic}",
    "TransactionLoaded": "{node} loaded {transactional_id} in state {state}, "
    f"{_PRODUCER}, from offset {{record_offset}}",
    "TransactionOffsetAccepted": "client {client_id} has the offset {offset} of "
    f"{_GROUP} in transaction {{transaction}}, {_PRODUCER}",
    "TransactionOffsetSent": "client {client_id} sends the offset {offset} of "
    f"{_GROUP} in transaction {{transaction}}, {_PRODUCER}",
    "TransactionStateChanged": "{node} has {transactional_id} in state {state}, "
    f"{_PRODUCER}, coordinator epoch {{coordinator_epoch}}, at offset {{offset}} of "
    "__transaction_state-{partition}",
    "TransactionalIdExpired": f"{{node}} expired {{transactional_id}}, {_PRODUCER}",
    "TransactionalIdTaken": f"client {{client_id}} initialised {{transactional_id}}: {_PRODUCER}",
    "TransactionsLoaded": "{node} loaded {transaction_count} transactional ids of "
    "__transaction_state-{partition} up to offset {next_offset}, coordinator epoch "
    "{coordinator_epoch}",
    "TransactionsUnloaded": "{node} unloaded the transactional ids of "
    "__transaction_state-{partition}, coordinator epoch {coordinator_epoch}",
    "VoteAnswered": "{node} {is_granted?granted|refused} candidate {candidate_id} its "
    "{is_pre_vote?pre-vote|vote} in epoch {leader_epoch}",
    "VoteSent": "{node} announced its vote for {candidate_id} in epoch {leader_epoch}",
    "VotersChanged": "{node} has the voters {voters} from offset {offset} on",
    "ZookeeperCompared": "{controller} compared ZooKeeper with the metadata at offset {offset}: "
    "{differences#difference}: {what}",
    "ZookeeperControllerClaimed": "{node} claimed /controller with controller epoch "
    "{controller_epoch}, as KRaft controller of epoch {kraft_controller_epoch}",
    "ZookeeperControllerElected": "{node} became controller in ZooKeeper with controller epoch "
    "{controller_epoch}",
}


def printable(value: int | str | bool) -> str:
    """Return a value as text that cannot move the cursor or end the line."""
    text = str(value)
    return (
        text
        if text.isprintable()
        else "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    )


def has_sentence(kind: str) -> bool:
    """Return whether a kind has a template of its own."""
    return kind in _TEMPLATES


def fields_of_sentence(kind: str) -> set[str]:
    """Return the names of the fields that the template of a kind names."""
    places = list(_PLACE.finditer(_TEMPLATES[kind]))
    return {place[1] for place in places} | {place[5] for place in places if place[5]}


def sentence_of(node: str, kind: str, fields: Mapping[str, Value]) -> str:
    """Return an event as a sentence that is safe for a terminal; null fields are absent."""
    template = _TEMPLATES.get(kind)
    if template is None:
        listed = " ".join(f"{name}={printable(value)}" for name, value in fields.items())
        return f"{printable(node)}: {printable(kind)} {listed}".rstrip()
    return _PLACE.sub(lambda place: _value(place, node, fields), template)


def _value(place: re.Match[str], node: str, fields: Mapping[str, Value]) -> str:
    name, if_true, if_false, counted, last, what = place.groups()
    value: Value | None = node if name == "node" else fields.get(name)
    if value is None:
        return "(none)"
    if if_true is not None:
        return str(if_true if value else if_false)
    if counted is not None:
        return f"{printable(value)} {counted}{'' if value == 1 else 's'}"
    if last is not None:
        end = fields.get(last, value)
        return (
            f"{what} {printable(value)}"
            if end == value
            else f"{what}s {printable(value)} to {printable(end)}"
        )
    if name in _NODE_IDS and value == NO_NODE:
        return "none"
    if name == "error_code" and isinstance(value, int):
        return _ERROR_NAMES.get(value, f"error {value}")
    return printable(value)

"""Behaviours in which releases differ, by name.

A trait selects a part once, in `server/parts.py`; no other code compares versions.

A trait of the binary names the release that introduced it; a trait of the cluster names the
metadata.version level from which it applies.
Source: the KIP or ticket of each trait.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trait:
    """A difference in behaviour. It is equal to itself only, and so compared without a call.

    Exactly one of since_release ("3.6") and since_level ("3.0-IV0") is set; `why` is a KIP or a
    ticket.
    """

    name: str
    since_release: str | None = None
    since_level: str | None = None
    why: str

    def __post_init__(self) -> None:
        assert (self.since_release is None) != (self.since_level is None), (
            f"trait {self.name} begins with a release or with a level"
        )


KEEPS_PRODUCERS_OF_DELETED_RECORDS = Trait(
    name="keeps-producers-of-deleted-records", since_release="2.4", why="KAFKA-7190"
)
"""Producer state is kept when the producer's records are deleted (before: it is removed with the
last of them).
"""

ACCEPTS_UNKNOWN_PRODUCERS = Trait(
    name="accepts-unknown-producers", since_release="2.5", why="KIP-360"
)
"""The first batch of a producer without state in the partition may have any sequence number
(before: UNKNOWN_PRODUCER_ID).
"""

LOGS_BEGIN_WITH_SEQUENCE_ZERO = Trait(
    name="logs-begin-with-sequence-zero", since_release="4.5", why="KAFKA-15591"
)
"""A log that never had a record accepts no first sequence of an idempotent producer but 0 (before:
any, so that a later batch may overtake the first one, which is then out of order for ever).
"""

SNAPSHOT_OF_EVERY_SEGMENT = Trait(
    name="snapshot-of-every-segment", since_release="2.8", why="KAFKA-9393"
)
"""Each segment has a snapshot of the producer state at its base offset until it is deleted (before:
the last two have one).
"""

FEATURE_ZNODE = Trait(name="feature-znode", since_level="2.7-IV0", why="KIP-584")
"""In ZooKeeper mode, finalized features are in /feature, and brokers register their supported
features.
"""

ALTERED_PARTITIONS = Trait(name="altered-partitions", since_level="2.7-IV2", why="KIP-497")
"""In ZooKeeper mode, a leader sends AlterPartition to the controller (before: it updates the znode
itself, and notifies by another znode).
"""

TOPIC_IDS = Trait(name="topic-ids", since_level="2.8-IV0", why="KIP-516")
"""Topics have ids."""

TOPIC_IDS_IN_REQUESTS = Trait(name="topic-ids-in-requests", since_level="2.8-IV1", why="KIP-516")
"""Requests from the controller to brokers contain topic ids, too."""

RPC_PRODUCER_IDS = Trait(name="rpc-producer-ids", since_level="3.0-IV0", why="KIP-730")
"""Brokers obtain producer ids from the controller by AllocateProducerIds (before: from
ZooKeeper).
"""

LEADER_RECOVERY = Trait(name="leader-recovery", since_level="3.2-IV0", why="KIP-704")
"""A partition records that its leader was elected uncleanly (LeaderRecoveryState)."""

RETRIABLE_BLOCK_TIMEOUT = Trait(
    name="retriable-block-timeout", since_release="3.3.2", why="KAFKA-14417"
)
"""If the wait for producer ids times out, the error is COORDINATOR_LOAD_IN_PROGRESS (before:
REQUEST_TIMED_OUT, fatal to producers).
"""

PUBLISHES_REMOTE_SEGMENTS_FIRST = Trait(
    name="announces-remote-copies-first", since_release="3.7", why="KAFKA-16209"
)
"""The start of a remote copy is published before the producer snapshot is read, which may be
missing (since 3.7.1; before: afterwards).
"""

MIGRATES_FROM_ZOOKEEPER = Trait(
    name="migrates-from-zookeeper", since_level="3.4-IV0", why="KIP-866"
)
"""A KRaft controller can migrate a ZooKeeper cluster, and brokers in ZooKeeper mode forward
requests that need the controller.
"""

PRODUCER_ID_EXPIRATION = Trait(name="producer-id-expiration", since_release="3.4", why="KIP-854")
"""producer.id.expiration.ms is a separate configuration (before:
transactional.id.expiration.ms).
"""

PREFETCHED_PRODUCER_IDS = Trait(
    name="prefetched-producer-ids", since_release="3.6", why="KAFKA-14694"
)
"""InitProducerId never waits for a block (before: up to request.timeout.ms)."""

VERIFIED_TRANSACTIONS = Trait(
    name="verified-transactions", since_release="3.6", why="KIP-890 part 1"
)
"""A leader appends transactional batches only if the coordinator confirms that the partition is in
the transaction.
"""

ABORTABLE_VERIFICATION = Trait(name="abortable-verification", since_release="3.8", why="KIP-890")
"""A coordinator returns TRANSACTION_ABORTABLE for a partition that is not in the transaction
(before: INVALID_TXN_STATE).
"""

TRANSACTIONS_HAVE_EPOCHS = Trait(
    name="transactions-have-epochs", since_release="4.0", why="KIP-890 part 2"
)
"""An open transaction of another producer epoch is a different transaction (before: it is treated
as the same).
"""

CHECKS_EPOCHS_FIRST = Trait(
    name="checks-epochs-first",
    since_release="4.0",
    why="KAFKA-19690; checked on 3.9.1, 4.0.0 to 4.0.2, 4.1.0, 4.1.1 and 4.4.0",
)
"""A batch of a past epoch whose verification is outdated gets INVALID_PRODUCER_EPOCH (before, and
in 4.0.0, 4.0.1 and 4.1.0: INVALID_TXN_STATE).
"""

NEW_ID_AFTER_LAST_TIMEOUT = Trait(
    name="new-id-after-last-timeout",
    since_release="4.3",
    why="KAFKA-20090; checked on 4.0.1, 4.1.2, 4.2.0, 4.2.2, 4.3.1 and 4.4.0",
)
"""A transaction of the last epoch that times out gives its producer a new id (before: the reserved
epoch, with which no transaction can end).
"""

DISJOINT_PRODUCER_ID_BLOCKS = Trait(
    name="disjoint-producer-id-blocks",
    since_release="4.3",
    why="KAFKA-20031; asked of 4.2.2 and 4.4.0; in the classes of 4.0.0, 4.1.2, 4.2.0 and 4.3.1",
)
"""A broker refuses a block of producer ids that starts at the last id of its current one (before:
it takes it, and hands out that id twice).
"""

PATIENT_TRANSACTIONS = Trait(name="patient-transactions", since_release="4.0", why="KAFKA-18575")
"""AddPartitionsToTxn during a pending completion returns CONCURRENT_TRANSACTIONS for any producer
epoch (before: another epoch is fenced).
"""

FORGETS_BEGINNINGS = Trait(
    name="forgets-beginnings",
    since_release="4.1",
    why="TransactionMetadata.completeTransitionTo; checked on 4.0.2 and 4.1.2",
)
"""InitProducerId clears the start time of the last transaction in the coordinator (before: in the
log, but not in memory).
"""

ANSWERS_READERS_BEHIND = Trait(
    name="answers-readers-behind",
    since_release="3.8",
    why="DelayedFetch; checked on 3.7.2 and 3.8.1",
)
"""A fetch beyond the end of what the consumer may read (an open transaction, say) returns empty at
once (before: it waits).
"""

READERS_STAND_AT_BATCHES = Trait(
    name="readers-stand-at-batches",
    since_release="4.0",
    why="LogSegment.read; checked on 3.9.1, 4.0.2, 4.1.2 and 4.4.0",
)
"""The position of such a fetch is the start of its batch: inside the last readable batch it waits
(before: it is answered).
"""

APPENDS_BY_TOPIC_ID = Trait(
    name="appends-by-topic-id",
    since_release="4.1",
    why="ReplicaManager.getPartitionOrException with a TopicIdPartition of 4.1.0, absent in 4.0.2",
)
"""A batch whose topic was deleted and created again between the arrival of the request and the
append is rejected with UNKNOWN_TOPIC_ID (before: appended to the new topic if its state allows).
"""

ISOLATION_OF_WHOLE_LISTINGS = Trait(
    name="isolation-of-whole-listings",
    since_release="4.0",
    why="ReplicaManager.fetchOffset; checked on 3.9.1, 4.0.2, 4.1.2 and 4.4.0",
)
"""ListOffsets with an unknown isolation level fails as a whole (before: for each partition of a
consumer's request, once).
"""

REFUSES_SHARE_KEYS = Trait(
    name="refuses-share-keys",
    since_release="4.0",
    why="KIP-932; KafkaApis.getCoordinator, checked on 3.9.1 and 4.0.2",
)
"""Without share groups, FindCoordinator returns INVALID_REQUEST for each share coordinator key
(before: COORDINATOR_NOT_AVAILABLE).
"""

PARSES_SHARE_KEYS = Trait(
    name="parses-share-keys",
    since_release="4.1",
    why="KIP-932; SharePartitionKey, checked on 4.0.2, 4.1.2 and 4.4.0",
)
"""FindCoordinator rejects a share coordinator key that is not group:topicId:partition (before:
accepts any).
"""

DECODES_TOKENS_AS_BASE64URL = Trait(
    name="decodes-tokens-as-base64url", since_release="4.2", why="KAFKA-17089"
)
"""The sections of an OAUTHBEARER token without signature are decoded as base64url (before: as plain
base64, so that a token of RFC 7515 with `-` or `_` is refused).
"""

THROTTLED_DELIVERIES = Trait(
    name="throttled-deliveries",
    since_release="4.2",
    why="KIP-932; SharePartition.acquireSubsetBatchRecords of 4.2.2, absent in 4.1.2",
)
"""Records that a share group has failed to process half as often as allowed are delivered in ever
smaller numbers, in the end one by one (before: with their whole batch).
"""

COUNTED_ABANDONED_DELIVERIES = Trait(
    name="counted-abandoned-deliveries",
    since_release="4.2",
    why="KIP-932; SharePartition.releaseAcquiredRecords of 4.1.2 and 4.2.2",
)
"""A delivery counts although the share session of the member ended before it acknowledged the
record (before: it is taken back).
"""

USER_RIGHTS = Trait(name="user-rights", since_release="3.3", why="KIP-373")
"""ACLs support the resource USER and the operations CREATE_TOKENS and DESCRIBE_TOKENS."""

TWO_PHASE_COMMIT_RIGHT = Trait(name="two-phase-commit-right", since_release="4.1", why="KIP-939")
"""ACLs support the operation TWO_PHASE_COMMIT."""

ENDPOINTS_FOR_CONSUMERS = Trait(
    name="endpoints-for-consumers",
    since_release="4.0",
    why="KafkaApis.handleFetchRequest of 3.9.1, 4.0.2, 4.1.2, 4.4.0",
)
"""A Fetch response contains the endpoints of new leaders for consumers only (before: for followers,
too).
"""

METADATA_TRANSACTIONS = Trait(name="metadata-transactions", since_level="3.6-IV1", why="KIP-866")
"""The bootstrap records of a metadata log are between BeginTransaction and EndTransaction
records.
"""

DIRECTORY_ASSIGNMENT = Trait(name="directory-assignment", since_level="3.7-IV2", why="KIP-858")
"""Brokers register their log directories; partitions record the log directory of each replica."""

BOUNDED_MIN_IN_SYNC_REPLICAS = Trait(
    name="bounded-min-in-sync-replicas", since_release="3.7", why="KAFKA-15583"
)
"""The effective min.insync.replicas is at most the replication factor (before: a greater value
rejects every acks=all).
"""

CLEAN_SHUTDOWN_EPOCH = Trait(name="clean-shutdown-epoch", since_release="3.7", why="KIP-966")
"""The clean shutdown file contains the broker epoch (before: it is empty)."""

DIRECTORY_IDS = Trait(name="directory-ids", since_release="3.7", why="KIP-858")
"""meta.properties contains a directory.id."""

MIGRATES_IN_TRANSACTIONS = Trait(
    name="migrates-in-transactions", since_release="3.9", why="KAFKA-17457"
)
"""A migration from ZooKeeper requires 3.6-IV1, and new metadata logs record that there was none
from that level (before, both: 3.4-IV0).
"""

MIGRATES_BEHIND_A_GATE = Trait(
    name="migrates-behind-a-gate", since_release="3.5", why="KAFKA-14805"
)
"""Until the migration is complete, a migrating controller handles registrations only; it ends the
migration when it is configured to.
"""

REGISTERS_MIGRATION_READINESS = Trait(
    name="registers-migration-readiness", since_release="3.7", why="KIP-919"
)
"""Controllers report in their registration whether they are ready for a migration (before: in
ApiVersions responses).
"""

BOOTSTRAPS_ARE_READ_WHEN_NEEDED = Trait(
    name="bootstraps-are-read-when-needed", since_release="4.0.1", why="KAFKA-19192"
)
"""bootstrap.checkpoint is read only by a controller whose log is empty (before: an unknown level in
it makes any controller fail).
"""

WITHOUT_ZOOKEEPER = Trait(name="without-zookeeper", since_release="4.0", why="KIP-833")
"""The metadata log has no ZkMigrationStateRecord; one in an older log is ignored."""

CHECKS_SESSIONS_PERIODICALLY = Trait(
    name="checks-sessions-periodically",
    since_release="4.0",
    why="QuorumController.maybeFenceStaleBrokerPeriodNs; seen in the classes of 3.9.1, 4.0.0 and "
    "4.4.0",
)
"""An active controller looks for expired broker sessions eight times per session (before: when the
next one expires). A broker may register again after its session, and before it is fenced.
"""

CLIENT_INSTANCES_END = Trait(
    name="client-instances-end",
    since_release="4.0",
    why="ClientMetricsManager.ClientConnectionDisconnectListener; measured with Apache Kafka "
    "3.7.2, 3.9.1, 4.0.2, 4.1.2 and 4.4.0",
)
"""With client telemetry, a client instance is forgotten when its connection closes, and may ask for
its subscription at once after a push with an unknown one (before: only after the push interval).
"""

SHUTDOWN_AT_REGISTRATION = Trait(
    name="shutdown-at-registration", since_release="4.0", why="KIP-966"
)
"""The registration of a new incarnation of a broker removes the previous one from every ISR, and
reports whether its shutdown was clean.

Fetch sessions belong to one incarnation.
"""

PRE_VOTE = Trait(name="pre-vote", since_release="4.0", why="KIP-996")
"""A voter sends a pre-vote before it raises the epoch (before: it raises it at once)."""

CONSUMER_GROUPS = Trait(name="consumer-groups", since_release="4.0", why="KIP-848")
"""The KIP-848 coordinator serves groups of both protocols (before: classic ones, unless the
consumer protocol is enabled).
"""

MEMBERS_TAKE_BACK = Trait(
    name="members-take-back",
    since_release="4.0",
    why="CurrentAssignmentBuilder.computeNextAssignment of 3.9.1 and 4.0.2",
)
"""A partition that a consumer group member has revoked may be assigned to it again in the same step
(before: in the next one).
"""

SHARE_GROUPS_FIRST = Trait(
    name="share-groups-first",
    since_release="4.1",
    why="GroupCoordinatorService.deleteShareGroups; classes of 4.0.2, 4.1.2 and 4.4.0",
)
"""DeleteGroups looks for share groups first, and deletes no group before everything that was
written to the coordinator's partition earlier is replicated (before: it deletes at once).
"""

MEMBERS_REJOIN = Trait(
    name="members-come-anew",
    since_release="4.2",
    why="GroupMetadataManager; checked on 4.1.2, 4.2.2, 4.3.1 and 4.4.0",
)
"""A member of a consumer group may rejoin without having left (before: it is fenced)."""

STREAMS_ROLES = Trait(
    name="streams-roles",
    since_release="4.4",
    why="CurrentAssignmentBuilder, TargetAssignmentBuilder; classes of 4.2.2, 4.3.1 and 4.4.0",
)
"""Streams groups have static members and changelog offsets, are assigned by what their members run,
and a member may keep a task in another role (before: by the former target, and it revokes first).
"""

MEMBERS_DROP_UNSUBSCRIBED = Trait(
    name="members-drop-unsubscribed",
    since_release="4.2",
    why="CurrentAssignmentBuilder; checked on 4.0.2, 4.1.2, 4.2.2 and 4.4.0",
)
"""A member whose subscription changes gives up at once what it does not subscribe to any longer
(before: with its next target assignment).
"""

DELAYED_ASSIGNMENTS = Trait(name="delayed-assignments", since_release="4.3", why="KIP-1263")
"""Target assignments of consumer and share groups are computed at intervals (before: at every
change).
"""

SHARE_OFFSETS_MAKE_GROUPS = Trait(
    name="share-offsets-make-groups",
    since_release="4.2",
    why="GroupMetadataManager.alterShareGroupOffsets of 4.1.2 and 4.2.2",
)
"""AlterShareGroupOffsets creates an unknown share group (before: it is refused)."""

SETTLED_SHARE_GROUPS = Trait(
    name="settled-share-groups",
    since_release="4.4",
    why="GroupMetadataManager.shareGroupFenceMember of 4.3.1 and 4.4.0",
)
"""The target assignment of a share group is for the group epoch as soon as its last member leaves
(before: with the next member).
"""

ADDED_SHARE_PARTITIONS_WHOLE = Trait(
    name="added-share-partitions-whole",
    since_release="4.4",
    why="GroupMetadataManager.buildInitializeShareGroupStateRequest of 4.3.1 and 4.4.0",
)
"""A share group reads a partition that is added to one of its topics from the start (before: from
where share.auto.offset.reset says).
"""

ASSIGNMENT_EPOCHS = Trait(name="assignment-epochs", since_release="4.3", why="KIP-1251")
"""A consumer group member may commit offsets in the epoch in which the partition was assigned or
later (before: only in its current epoch).
"""

CASELESS_GROUP_STATES = Trait(name="caseless-group-states", since_release="3.8", why="KAFKA-16095")
"""ListGroups matches states case-insensitively (before: in the coordinator's spelling only)."""

CLIENT_METRICS = Trait(name="client-metrics", since_release="3.7", why="KIP-714")
"""Client metrics subscriptions have configurations."""

ATOMIC_FEATURE_UPDATES = Trait(name="atomic-feature-updates", since_release="4.0", why="KIP-1022")
"""UpdateFeatures updates all features of a request or none (before: each independently)."""

EXPLAINED_UNREGISTRATION = Trait(
    name="explained-unregistration", since_release="4.0", why="KIP-631"
)
"""UnregisterBroker returns an error message (before: none)."""

MOVES_WAIT_FOR_NEWCOMERS = Trait(
    name="moves-wait-for-newcomers", since_release="4.3", why="KAFKA-19975"
)
"""A reassignment completes when the adding replicas are in sync, unless it removes replicas
(before: when all target replicas are).
"""

ASSIGNMENTS_KEEP_ELIGIBLE = Trait(
    name="assignments-keep-eligible", since_release="4.3", why="KIP-966"
)
"""AssignReplicasToDirs leaves the eligible leader replicas of a partition unchanged (before: it
clears them).
"""

NAMED_DOWNGRADES = Trait(name="named-downgrades", since_release="4.3", why="KIP-778")
"""The error message of a rejected metadata.version downgrade contains both levels (before: only the
target level).
"""

COUNTS_COMPLETE_SHARE_RECORDS = Trait(
    name="counts-complete-share-records",
    since_release="4.2",
    why="KIP-1226; ShareCoordinatorShard of 4.1.2, 4.2.2 and 4.4.0",
)
"""A share coordinator stores how many records are complete, and a write changes no epoch (before: a
write sets the leader epoch, and begins a snapshot with a later state epoch).
"""

SHARE_KEYS_HAVE_COLONS = Trait(
    name="share-keys-have-colons",
    since_release="4.2",
    why="SharePartitionKey.getInstance of 4.1.2, 4.2.2 and 4.4.0",
)
"""The group id in a share coordinator key may contain colons (before: such a key is rejected)."""

ADMITS_READERS_WITHOUT_EPOCH = Trait(
    name="admits-readers-without-epoch",
    since_release="4.3",
    why="ShareCoordinatorShard.maybeGetReadStateError of 4.2.2 and 4.3.1",
)
"""A share coordinator answers a read with leader epoch -1 (before: it is fenced)."""

SHARE_STARTS_ONLY_ADVANCE = Trait(
    name="share-starts-only-advance",
    since_release="4.4",
    why="ShareCoordinatorShard and PersisterStateBatchCombiner of 4.3.1 and 4.4.0",
)
"""A share coordinator refuses negative epochs, and never moves a start offset back (before: -1 is
an unknown epoch, and the start offset is the last one written).
"""

RETRIES_LOST_STATE_REQUESTS = Trait(
    name="retries-lost-state-requests",
    since_release="4.2",
    why="PersisterStateManager.checkResponseError of 4.2.2; checkNetworkError of 4.1.2",
)
"""A broker repeats a request to a share coordinator that was not answered (before: the operation
fails with NETWORK_EXCEPTION or REQUEST_TIMED_OUT).
"""

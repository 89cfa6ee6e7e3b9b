"""Behaviours in which releases differ, by name. A trait picks a part once, in `node/parts.py`; nobody compares version numbers elsewhere.

A trait that belongs to the binary names the release that brought it; one that belongs to the cluster names the level of metadata.version from
which it holds.   Source: the KIP or ticket of each trait.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Trait:
    """A difference in behaviour. Exactly one of since_release ("3.6") and since_level ("3.0-IV0") is set; `why` is a KIP or a ticket."""

    name: str
    since_release: str | None = None
    since_level: str | None = None
    why: str

    def __post_init__(self) -> None:
        assert (self.since_release is None) != (self.since_level is None), f"trait {self.name} begins with a release or with a level"


KEEPS_PRODUCERS_OF_DELETED_RECORDS = Trait(name="keeps-producers-of-deleted-records", since_release="2.4", why="KAFKA-7190")
"""What is known of a producer stays when its records are deleted (before: it goes with the last of them)."""

ACCEPTS_UNKNOWN_PRODUCERS = Trait(name="accepts-unknown-producers", since_release="2.5", why="KIP-360")
"""A first batch of a producer that the partition does not know may have any sequence number (before: UNKNOWN_PRODUCER_ID)."""

SNAPSHOT_OF_EVERY_SEGMENT = Trait(name="snapshot-of-every-segment", since_release="2.8", why="KAFKA-9393")
"""Each segment has a snapshot of the producers at its beginning as long as it lives (before: the last two have one)."""

FEATURE_ZNODE = Trait(name="feature-znode", since_level="2.7-IV0", why="KIP-584")
"""In ZooKeeper mode, finalized features are in /feature, and brokers register with those that they support."""

ALTERED_PARTITIONS = Trait(name="altered-partitions", since_level="2.7-IV2", why="KIP-497")
"""In ZooKeeper mode, a leader asks the controller to change the ISR (before: it writes the znode itself, and notifies by another one)."""

TOPIC_IDS = Trait(name="topic-ids", since_level="2.8-IV0", why="KIP-516")
"""Topics have ids."""

TOPIC_IDS_IN_REQUESTS = Trait(name="topic-ids-in-requests", since_level="2.8-IV1", why="KIP-516")
"""The controller names topics by id to brokers, too."""

RPC_PRODUCER_IDS = Trait(name="rpc-producer-ids", since_level="3.0-IV0", why="KIP-730")
"""Brokers obtain producer ids from the controller by AllocateProducerIds (before: from ZooKeeper)."""

LEADER_RECOVERY = Trait(name="leader-recovery", since_level="3.2-IV0", why="KIP-704")
"""A leader that was elected uncleanly is marked as one."""

RETRIABLE_BLOCK_TIMEOUT = Trait(name="retriable-block-timeout", since_release="3.3.2", why="KAFKA-14417")
"""A wait for producer ids that took too long is COORDINATOR_LOAD_IN_PROGRESS (before: REQUEST_TIMED_OUT, fatal to producers)."""

ANNOUNCES_REMOTE_COPIES_FIRST = Trait(name="announces-remote-copies-first", since_release="3.7", why="KAFKA-16209")
"""A remote copy is announced before its producer snapshot is looked for, which may be missing (since 3.7.1; before: the other way round)."""

MIGRATES_FROM_ZOOKEEPER = Trait(name="migrates-from-zookeeper", since_level="3.4-IV0", why="KIP-866")
"""A KRaft controller can take over a cluster of ZooKeeper, and brokers there forward what only a controller can decide."""

PRODUCER_ID_EXPIRATION = Trait(name="producer-id-expiration", since_release="3.4", why="KIP-854")
"""producer.id.expiration.ms is a setting of its own (before: transactional.id.expiration.ms)."""

PREFETCHED_PRODUCER_IDS = Trait(name="prefetched-producer-ids", since_release="3.6", why="KAFKA-14694")
"""InitProducerId never waits for a block (before: up to request.timeout.ms)."""

VERIFIED_TRANSACTIONS = Trait(name="verified-transactions", since_release="3.6", why="KIP-890 part 1")
"""A leader takes transactional batches only for partitions that the coordinator knows to be in the transaction."""

ABORTABLE_VERIFICATION = Trait(name="abortable-verification", since_release="3.8", why="KIP-890")
"""A coordinator says TRANSACTION_ABORTABLE of a partition that is not in the transaction (before: INVALID_TXN_STATE)."""

TRANSACTIONS_HAVE_EPOCHS = Trait(name="transactions-have-epochs", since_release="4.0", why="KIP-890 part 2")
"""A transaction that is open in a partition with another epoch of its producer is another one (before: it is taken for the same)."""

PATIENT_TRANSACTIONS = Trait(name="patient-transactions", since_release="4.0", why="KAFKA-18575")
"""Who adds partitions while the transaction before ends is told to come again, whoever it is (before: another epoch is fenced)."""

FORGETS_BEGINNINGS = Trait(name="forgets-beginnings", since_release="4.1", why="TransactionMetadata.completeTransitionTo; asked of 4.0.2 and 4.1.2")
"""InitProducerId makes a coordinator forget when the last transaction began (before: in the log, and not in memory)."""

ANSWERS_READERS_BEHIND = Trait(name="answers-readers-behind", since_release="3.8", why="DelayedFetch; asked of 3.7.2 and 3.8.1")
"""A reader that asks from behind what it may see (an open transaction, say) is answered at once, with nothing (before: it waits)."""

READERS_STAND_AT_BATCHES = Trait(name="readers-stand-at-batches", since_release="4.0", why="LogSegment.read; asked of 3.9.1, 4.0.2, 4.1.2 and 4.4.0")
"""Such a reader stands where its batch begins: inside the batch at the end of what it may see it waits (before: it is answered)."""

ISOLATION_OF_WHOLE_LISTINGS = Trait(
    name="isolation-of-whole-listings", since_release="4.0", why="ReplicaManager.fetchOffset; asked of 3.9.1, 4.0.2, 4.1.2 and 4.4.0"
)
"""ListOffsets with an isolation level that there is not fails as a whole (before: each partition that a consumer asks about, but once)."""

REFUSES_SHARE_KEYS = Trait(name="refuses-share-keys", since_release="4.0", why="KIP-932; KafkaApis.getCoordinator, asked of 3.9.1 and 4.0.2")
"""Without share groups FindCoordinator refuses each key of a share coordinator as invalid (before: it has no coordinator)."""

PARSES_SHARE_KEYS = Trait(name="parses-share-keys", since_release="4.1", why="KIP-932; SharePartitionKey, asked of 4.0.2, 4.1.2 and 4.4.0")
"""FindCoordinator refuses a key of a share coordinator that is not group:topicId:partition (before: any)."""

USER_RIGHTS = Trait(name="user-rights", since_release="3.3", why="KIP-373")
"""Access rules know the resource USER and the operations CREATE_TOKENS and DESCRIBE_TOKENS."""

TWO_PHASE_COMMIT_RIGHT = Trait(name="two-phase-commit-right", since_release="4.1", why="KIP-939")
"""Access rules know the operation TWO_PHASE_COMMIT."""

ENDPOINTS_FOR_CONSUMERS = Trait(name="endpoints-for-consumers", since_release="4.0", why="KafkaApis.handleFetchRequest of 3.9.1, 4.0.2, 4.1.2, 4.4.0")
"""A Fetch names the addresses of new leaders to consumers only (before: to followers, too)."""

METADATA_TRANSACTIONS = Trait(name="metadata-transactions", since_level="3.6-IV1", why="KIP-866")
"""The first records of a metadata log stand between BeginTransaction and EndTransaction."""

DIRECTORY_ASSIGNMENT = Trait(name="directory-assignment", since_level="3.7-IV2", why="KIP-858")
"""Brokers register their log directories; partitions say in which one each replica lives."""

BOUNDED_MIN_IN_SYNC_REPLICAS = Trait(name="bounded-min-in-sync-replicas", since_release="3.7", why="KAFKA-15583")
"""min.insync.replicas counts at most as much as the partition has replicas (before: a greater value refuses every acks=all)."""

CLEAN_SHUTDOWN_EPOCH = Trait(name="clean-shutdown-epoch", since_release="3.7", why="KIP-966")
"""The clean shutdown file holds the broker epoch (before: it is empty)."""

DIRECTORY_IDS = Trait(name="directory-ids", since_release="3.7", why="KIP-858")
"""meta.properties holds a directory.id."""

MIGRATES_IN_TRANSACTIONS = Trait(name="migrates-in-transactions", since_release="3.9", why="KAFKA-17457")
"""No cluster below 3.6-IV1 is migrated from ZooKeeper: an empty log says only from there on that it never was (before: from 3.4-IV0 on)."""

MIGRATES_BEHIND_A_GATE = Trait(name="migrates-behind-a-gate", since_release="3.5", why="KAFKA-14805")
"""Until all is copied a migrating controller decides nothing but registrations, and it ends the migration when it is told to."""

REGISTERS_MIGRATION_READINESS = Trait(name="registers-migration-readiness", since_release="3.7", why="KIP-919")
"""Controllers say in their registration whether they can take over from ZooKeeper (before: in their answers to ApiVersions)."""

BOOTSTRAPS_ARE_READ_WHEN_NEEDED = Trait(name="bootstraps-are-read-when-needed", since_release="4.0.1", why="KAFKA-19192")
"""What bootstrap.checkpoint says matters to a controller whose log is empty (before: a level that it does not know ends any)."""

WITHOUT_ZOOKEEPER = Trait(name="without-zookeeper", since_release="4.0", why="KIP-833")
"""The metadata log does not say whether it came from ZooKeeper; where an older one does, that is passed over."""

SHUTDOWN_AT_REGISTRATION = Trait(name="shutdown-at-registration", since_release="4.0", why="KIP-966")
"""A new incarnation of a broker takes its place in every ISR from the one before when it registers, and says whether that one ended cleanly.

Sessions are those of one incarnation.
"""

PRE_VOTE = Trait(name="pre-vote", since_release="4.0", why="KIP-996")
"""A voter asks whether it would be elected before it raises the epoch (before: it raises it at once)."""

CONSUMER_GROUPS = Trait(name="consumer-groups", since_release="4.0", why="KIP-848")
"""The coordinator of KIP-848 serves groups of both kinds (before: classic ones, unless somebody asks for the other kind)."""

MEMBERS_TAKE_BACK = Trait(name="members-take-back", since_release="4.0", why="CurrentAssignmentBuilder.computeNextAssignment of 3.9.1 and 4.0.2")
"""A member of a consumer group that has given a partition up may be given it again in the same step (before: in the next one)."""

MEMBERS_COME_ANEW = Trait(name="members-come-anew", since_release="4.2", why="GroupMetadataManager; asked of 4.1.2, 4.2.2, 4.3.1 and 4.4.0")
"""A member of a consumer group may join again without having left (before: it is fenced)."""

DELAYED_ASSIGNMENTS = Trait(name="delayed-assignments", since_release="4.3", why="KIP-1263")
"""Targets of consumer groups are worked out once in a while (before: at every change)."""

ASSIGNMENT_EPOCHS = Trait(name="assignment-epochs", since_release="4.3", why="KIP-1251")
"""A member of a consumer group may commit in a past epoch what it has had since then (before: its present epoch only)."""

CASELESS_GROUP_STATES = Trait(name="caseless-group-states", since_release="3.8", why="KAFKA-16095")
"""ListGroups filters by states whatever the capitals (before: in the coordinator's own spelling only)."""

CLIENT_METRICS = Trait(name="client-metrics", since_release="3.7", why="KIP-714")
"""Subscriptions to clients' metrics have configurations."""

ATOMIC_FEATURE_UPDATES = Trait(name="atomic-feature-updates", since_release="4.0", why="KIP-1022")
"""UpdateFeatures changes all features of a request or none (before: each by itself)."""

EXPLAINED_UNREGISTRATION = Trait(name="explained-unregistration", since_release="4.0", why="KIP-631")
"""UnregisterBroker says why it refuses (before: without a word)."""

MOVES_WAIT_FOR_NEWCOMERS = Trait(name="moves-wait-for-newcomers", since_release="4.3", why="KAFKA-19975")
"""A move is done when those who join are in sync, unless the partition gets fewer replicas (before: when all who shall stay are)."""

ASSIGNMENTS_KEEP_ELIGIBLE = Trait(name="assignments-keep-eligible", since_release="4.3", why="KIP-966")
"""A broker that says in which directory a replica lies leaves the eligible leaders of the partition as they are (before: none is left)."""

NAMED_DOWNGRADES = Trait(name="named-downgrades", since_release="4.3", why="KIP-778")
"""A downgrade of metadata.version that is refused is told with the level it comes from (before: only with the one it was to go to)."""

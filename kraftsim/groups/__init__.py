"""Groups: consumers share the partitions of topics, and commit the offsets up to which they have
read.

The coordinator of a group is the leader of the partition of `__consumer_offsets` that its name maps
to. It serves two protocols. In the classic one (JoinGroup, SyncGroup, Heartbeat, LeaveGroup;
KIP-62, KIP-345, KIP-394, KIP-429) members join a generation, and one of them assigns the
partitions. In that of KIP-848 (ConsumerGroupHeartbeat) the coordinator assigns, and each member
moves to its target at its own pace. Groups migrate online from one to the other. OffsetCommit,
OffsetFetch and TxnOffsetCommit serve both. Further types of groups are in a shard only while there
are some (`rules_other_groups`): share groups (KIP-932), whose members share partitions, and streams
groups (KIP-1071). In Kafka: kafka.coordinator.group.* up to 3.9,
org.apache.kafka.coordinator.group.* since.

Invariants. A partition has one owner: in KIP-848 it is free only when its former owner has reported
the revocation. An acknowledged commit is replicated. Of two commits for a partition the one with
the higher log offset wins, in whatever order they are replicated or their transactions end
(KAFKA-5247). What the coordinator holds equals what the next one would load from the log. A commit
of a member that has lost its partitions is fenced by generation or member epoch (KIP-447).

The path of a request, TxnOffsetCommit for example:

    broker_handlers/k28_txn_...   decodes, and sorts out unknown partitions
    group_coordinator             `coordinated` returns the partition, NOT_COORDINATOR or LOADING
    transactional_commits         has the transaction verified (KIP-890), then hands over
    rules_shard                   `GroupShard` routes to the rules of the group's protocol
    rules_committing              `TransactionalCommitting.refuse` decides, `_store` puts offsets in
                                  flight and appends them, all in one step
    coordinated_partition         executes the effects of `rules_offsets.Outbox` in order: append to
                                  the log (`coordinator_log`), wait for the replicas, reply
    rules_offsets                 `GroupOffsets.pend` holds the offset until the marker arrives
                                  (`CoordinatedPartition.end_transaction`)

The rules of a `__consumer_offsets` partition are one state machine: requests and timers go in with
their time, replies and appends come out. `rules_*` never wait. A JoinGroup that has to wait for
other members is a number in `Member.join_waiter`, answered when the phase ends.

What is hard. Validation and append must be one step: with a pause in between a rebalance accepts
offsets of a member that lost its partitions (KAFKA-15784), which is why verification comes first.
Time is two clocks: sessions use the monotonic one, retention the wall clock
(`rules_timing.Moment`). Deadlines move with every heartbeat and rarely expire, so `Timers` moves
them without touching its heap. The assignors must return exactly Kafka's result, down to the
iteration order of Java's hash maps (`rules_assignors`). If the log refuses an append whose change
is in memory already, the partition is loaded again.

Streams groups (KIP-1071) are a third type: the coordinator also knows the topology, creates its
internal topics, and assigns tasks: `rules_streams_groups` decides, over `rules_streams_topology`,
`rules_streams_targets` with `rules_streams_assignor`, and `rules_streams_reconciliation`. They are
imported when the first member or record of such a group comes. In 4.4 a failed heartbeat leaves
what was assigned for its epoch behind, and a static member that is not released yet takes it along.

Releases. Consumer groups are served by default since 4.0, before that only if enabled. 4.2 lets a
member rejoin without having left, 4.3 computes target assignments at intervals (KIP-1263) and
accepts commits of older assignment epochs (KIP-1251). ListGroups ignores the case of states since
3.8. `rules_fencing_variants` has the designs that KIP-447 did not ship.

Read `rules_timing`, `rules_classic_group`, `rules_rebalance` for the classic protocol;
`rules_consumer_group`, then `rules_consumer_groups` for KIP-848; `rules_offsets` and
`rules_committing` for offsets; `rules_share_group`, `rules_share_groups` and
`rules_share_group_states` for share groups, with `share_partition_states` for what they ask of
share coordinators; `rules_shard` and `coordinated_partition` for what holds them together.
"""

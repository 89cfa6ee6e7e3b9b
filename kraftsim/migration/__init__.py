"""Migration: a cluster whose metadata is in ZooKeeper moves to KRaft without downtime (KIP-866).

A quorum of controllers starts beside the old cluster, takes over the role of the ZooKeeper
controller, copies all metadata into its log, and from then on writes every change to both, until
all brokers run in KRaft mode and the operator ends the migration. Until then the way back is open.
In Kafka 3.4 to 3.9: org.apache.kafka.metadata.migration.KRaftMigrationDriver,
kafka.zk.ZkMigrationClient, kafka.migration.MigrationPropagator.

The driver is a state machine of the leader: it waits for the quorum (all controllers configured for
the migration), waits for the brokers (all registered with both), claims /controller, copies,
compares ZooKeeper with the log, sends all metadata to the brokers that are still in ZooKeeper mode,
and then mirrors each committed change (DUAL_WRITE).

Invariants. One controller writes: every write is conditional on the versions of /controller_epoch
and /migration, so a deposed controller of either mode writes nothing. Brokers see the copy whole or
not at all, because it is one metadata transaction (from metadata.version 3.6-IV1). In DUAL_WRITE
ZooKeeper equals the committed log up to the offset in /migration. No change is mirrored before it
is committed. Producer ids, epochs and topic ids survive.

The path of one committed change in DUAL_WRITE:

    migration              `on_grown` queues that the log has grown; `run` takes one event at a time
    migration              replays what was committed since, and records what it touched
    rules_driver           `Published` goes in, `Mirror` comes out
    migration              executes `Mirror`: `operations_of` turns the touched keys into writes
                           (`kraftsim/zookeeper/rules_znode_writes`)
    zookeeper_side         writes them, fenced, and then the new offset to /migration
    zookeeper/propagator   sends LeaderAndIsr, UpdateMetadata and StopReplica to the brokers in
                           ZooKeeper mode (`rules_propagation.KraftPropagation`)
    rules_driver           the result comes back as the next event, before any other

What is hard. Two leaders change: that of the quorum, and the ZooKeeper controller. A new leader
reads /migration again and compares everything before it mirrors changes, because its predecessor
may have stopped between the log and ZooKeeper (KAFKA-15010). A copy that is in the log but not
recorded in /migration is continued; Kafka never continues from there. A /migration of another
quorum must not be believed: Kafka would bring ZooKeeper in line with an empty log, and delete all
topics (`why_not_ours`). A failed write leaves ZooKeeper behind, and then all metadata is compared,
not only the next change.

Releases. Up to 3.6 the leader asks the other controllers in ApiVersions whether they are ready,
since 3.7 they register it (`why_not_asked_ready`, `why_not_ready`). Since 3.5 a migrating
controller serves registrations only until the copy is complete (KAFKA-14805). 3.9 needs 3.6-IV1, so
that the copy is a transaction (KAFKA-17457). 4.0 has no ZooKeeper.

Read `rules_driver` from `DriverState` to `MigrationDriver.step`, then `migration`,
`zookeeper_side`. docs/upgrades.md shows a migration as an operator sees it.
"""

"""One-sentence descriptions of settings with effect, for reference/settings.md and for
DescribeConfigs.

Import this module lazily, not at the start of a node: the table is parsed at the first
`meaning_of`. The texts are kraftsim's own.
"""

from functools import cache

CONTINUED = "\n    "
"""An indented line of the text below continues the meaning above it."""
TABLE = """
add.partitions.to.txn.retry.backoff.max.ms | Longest time for which a broker repeats the
    verification of a transaction's partition.
add.partitions.to.txn.retry.backoff.ms | Pause before a broker repeats the verification of a
    transaction's partition.
advertised.host.name | Host that a broker up to 2.8 registers; advertised.listeners takes
    precedence.
advertised.listeners | Addresses that the broker registers, and that clients and other brokers
    connect to.
advertised.port | Port that a broker up to 2.8 registers; advertised.listeners takes precedence.
allow.everyone.if.no.acl.found | Whether a resource without access rules is open to every principal.
alter.log.dirs.replication.quota.window.num | Number of samples that measure moves between log
    directories.
alter.log.dirs.replication.quota.window.size.seconds | Length of one such sample in seconds.
authorizer.class.name | Authorizer class; empty: everything is allowed.
auto.create.topics.enable | Whether a Metadata request creates the topics that it names.
auto.leader.rebalance.enable | Whether the controller moves leadership back to preferred replicas.
broker.heartbeat.interval.ms | Pause between two heartbeats of a broker to the controller.
broker.id | Id of a broker in ZooKeeper mode; node.id is the same setting.
broker.rack | Rack of the broker, used to spread replicas and to choose the nearest one for reads.
broker.session.timeout.ms | Time without a heartbeat after which the controller fences a broker.
cleanup.policy | What happens to old segments of the topic: delete, compact, or both.
compression.type | Codec in which the leader stores batches; producer keeps the codec of the
    producer.
connection.failed.authentication.delay.ms | Time by which the close of a connection is delayed after
    a failed login.
connections.max.idle.ms | Time without traffic after which a connection is closed.
connections.max.reauth.ms | Longest time between two logins on one SASL connection; 0: one login is
    enough.
consumer.assignment.interval.ms | Shortest time between two assignments of this consumer group.
consumer.heartbeat.interval.ms | Heartbeat interval of the members of this consumer group.
consumer.session.timeout.ms | Time without a heartbeat after which a member of this consumer group
    is removed.
control.plane.listener.name | Listener that the controller uses to send requests to brokers in
    ZooKeeper mode.
controlled.shutdown.enable | Whether a broker asks the controller to move its leaderships before it
    stops.
controlled.shutdown.max.retries | Number of times that a broker in ZooKeeper mode repeats its
    controlled shutdown.
controlled.shutdown.retry.backoff.ms | Pause before such a repetition.
controller.listener.names | Listener names of the controllers; the first one is used.
controller.quorum.bootstrap.servers | Addresses for finding the quorum leader, for dynamic voters.
controller.quorum.election.backoff.max.ms | Longest pause of a candidate between two elections.
controller.quorum.election.timeout.ms | Time after which a candidate without a majority ends its
    election.
controller.quorum.fetch.max.bytes | Bytes of the metadata log that one Fetch of a replica requests.
controller.quorum.fetch.snapshot.max.bytes | Bytes of a snapshot that one FetchSnapshot requests.
controller.quorum.fetch.timeout.ms | Time without a successful Fetch after which a voter starts an
    election.
controller.quorum.request.timeout.ms | Timeout of a request to another replica.
controller.quorum.retry.backoff.ms | Pause after a failed request to another replica.
controller.quorum.voters | Voters of the quorum as id@host:port, where they are fixed.
controller.quota.window.num | Number of samples that measure changes of topics and partitions.
controller.quota.window.size.seconds | Length of one such sample in seconds.
controller.socket.timeout.ms | Timeout of a request between a broker and the controller.
cordoned.log.dirs | Log directories that get no new replicas.
default.replication.factor | Number of replicas of a topic that is created without a value.
delete.retention.ms | Time for which compaction keeps a tombstone or a transaction marker.
delete.topic.enable | Whether topics can be deleted.
errors.deadletterqueue.copy.record.enable | Whether a record is copied to the dead letter topic of
    this share group, or only described there.
errors.deadletterqueue.topic.name | Topic that gets the records which this share group gives up;
    empty: none.
fetch.max.bytes | Most bytes that the broker returns for one Fetch of a consumer.
flush.messages | Number of records after which the log must be flushed.
follower.replication.throttled.rate | Bytes per second that a broker may replicate to throttled
    replicas.
follower.replication.throttled.replicas | Replicas whose replication is throttled on the follower.
group.consumer.assignment.interval.ms | Shortest time between two assignments of one consumer group.
group.consumer.assignors | Assignors of consumer groups; the first one is the default.
group.consumer.heartbeat.interval.ms | Heartbeat interval that the coordinator gives to members of
    consumer groups.
group.consumer.max.assignment.interval.ms | Upper bound of assignment intervals of consumer groups.
group.consumer.max.heartbeat.interval.ms | Upper bound of heartbeat intervals of consumer groups.
group.consumer.max.session.timeout.ms | Upper bound of session timeouts of consumer groups.
group.consumer.max.size | Most members that one consumer group may have.
group.consumer.migration.policy | Which groups with members may change between the classic and the
    consumer protocol.
group.consumer.min.assignment.interval.ms | Lower bound of assignment intervals of consumer groups.
group.consumer.min.heartbeat.interval.ms | Lower bound of heartbeat intervals of consumer groups.
group.consumer.min.session.timeout.ms | Lower bound of session timeouts of consumer groups.
group.consumer.session.timeout.ms | Time without a heartbeat after which a member of a consumer
    group is removed.
group.coordinator.rebalance.protocols | Kinds of groups that the broker serves.
group.initial.rebalance.delay.ms | Time for which the first rebalance of an empty classic group
    waits for more members.
group.max.session.timeout.ms | Longest session timeout that a member of a classic group may request.
group.max.size | Most members that one classic group may have.
group.min.session.timeout.ms | Shortest session timeout that a member of a classic group may
    request.
group.share.assignment.interval.ms | Shortest time between two assignments of one share group.
group.share.delivery.count.limit | Most deliveries of one record to a share group.
group.share.heartbeat.interval.ms | Heartbeat interval of the members of share groups.
group.share.initialize.retry.interval.ms | Time after which the first offset of a share-partition is
    initialized once more.
group.share.max.assignment.interval.ms | Upper bound of assignment intervals of share groups.
group.share.max.delivery.count.limit | Upper bound of the most deliveries of one record that a share
    group may set.
group.share.max.heartbeat.interval.ms | Upper bound of heartbeat intervals of share groups.
group.share.max.partition.max.record.locks | Upper bound of the most acquired records of one
    partition that a share group may set.
group.share.max.record.lock.duration.ms | Upper bound of the time for which a share group acquires
    records.
group.share.max.session.timeout.ms | Upper bound of session timeouts of share groups.
group.share.max.share.sessions | Most share sessions that a broker keeps at once.
group.share.max.size | Most members that one share group may have.
group.share.min.assignment.interval.ms | Lower bound of assignment intervals of share groups.
group.share.min.delivery.count.limit | Lower bound of the most deliveries of one record that a share
    group may set.
group.share.min.heartbeat.interval.ms | Lower bound of heartbeat intervals of share groups.
group.share.min.partition.max.record.locks | Lower bound of the most acquired records of one
    partition that a share group may set.
group.share.min.record.lock.duration.ms | Lower bound of the time for which a share group acquires
    records.
group.share.min.session.timeout.ms | Lower bound of session timeouts of share groups.
group.share.partition.max.record.locks | Most records of one partition that are acquired or
    delivered out of order in a share group.
group.share.record.lock.duration.ms | Time for which a member of a share group acquires records.
group.share.session.timeout.ms | Time without a heartbeat after which a member of a share group is
    removed.
group.streams.assignment.interval.ms | Shortest time between two assignments of one streams group.
group.streams.assignors | Task assignors of streams groups; the first one is the default.
group.streams.heartbeat.interval.ms | Heartbeat interval of the members of streams groups.
group.streams.initial.rebalance.delay.ms | Time for which the first assignment of an empty streams
    group waits for more members.
group.streams.max.assignment.interval.ms | Upper bound of assignment intervals of streams groups.
group.streams.max.heartbeat.interval.ms | Upper bound of heartbeat intervals of streams groups.
group.streams.max.session.timeout.ms | Upper bound of session timeouts of streams groups.
group.streams.max.standby.replicas | Most standby tasks for each task that a streams group may set.
group.streams.max.warmup.replicas | Most warm-up tasks that a streams group may set.
group.streams.min.assignment.interval.ms | Lower bound of assignment intervals of streams groups.
group.streams.min.heartbeat.interval.ms | Lower bound of heartbeat intervals of streams groups.
group.streams.min.session.timeout.ms | Lower bound of session timeouts of streams groups.
group.streams.min.task.offset.interval.ms | Lower bound of the interval in which members of streams
    groups report their offsets.
group.streams.num.standby.replicas | Number of standby tasks for each task of a streams group.
group.streams.rack.aware.assignment.tags | Tags of clients over whose values a streams group spreads
    standby tasks.
group.streams.session.timeout.ms | Time without a heartbeat after which a member of a streams group
    is removed.
host.name | Host that a broker up to 2.8 listens on; listeners takes precedence.
index.interval.bytes | Bytes of log between two entries of the offset index.
initial.broker.registration.timeout.ms | Time after which a broker without a registration ends.
inter.broker.listener.name | Listener on which brokers reach each other.
inter.broker.protocol.version | Version of the inter-broker protocol in ZooKeeper mode.
leader.imbalance.check.interval.seconds | Interval between checks for leaders that are not the
    preferred replica.
leader.replication.throttled.rate | Bytes per second that a broker may send to followers of
    throttled replicas.
leader.replication.throttled.replicas | Replicas whose replication is throttled on the leader.
listener.security.protocol.map | Security protocol of each listener by name.
listeners | Addresses on which the node listens, by listener name.
local.retention.bytes | Bytes of a tiered partition that stay on the broker's disk.
local.retention.ms | Time for which segments of a tiered partition stay on the broker's disk.
log.cleaner.backoff.ms | Pause of the cleaner when there is nothing to compact.
log.cleaner.dedupe.buffer.size | Memory for the offset maps of all cleaner threads.
log.cleaner.delete.retention.ms | Time for which compaction keeps a tombstone or a transaction
    marker.
log.cleaner.enable | Whether logs are compacted at all.
log.cleaner.io.buffer.load.factor | Share of the offset map that the cleaner fills.
log.cleaner.io.max.bytes.per.second | Bytes that all cleaner threads may read and write per second.
log.cleaner.max.compaction.lag.ms | Longest time for which a record may wait for compaction.
log.cleaner.min.cleanable.ratio | Share of uncompacted bytes from which a log is compacted.
log.cleaner.min.compaction.lag.ms | Shortest time for which a record is left uncompacted.
log.cleaner.threads | Number of logs that are compacted at the same time.
log.cleanup.policy | What happens to old segments of topics: delete, compact, or both.
log.dir | The same as log.dirs, where that is not set.
log.dir.failure.timeout.ms | Time for which a broker tries to report a failed log directory before
    it ends.
log.dirs | Directories of the logs, separated by commas.
log.flush.interval.messages | Number of records after which a log must be flushed.
log.flush.interval.ms | Longest time that a record may wait for a flush.
log.flush.offset.checkpoint.interval.ms | Pause between two checkpoints of recovery points.
log.index.interval.bytes | Bytes of log between two entries of an offset index.
log.index.size.max.bytes | Size of an index at which its segment is closed.
log.initial.task.delay.ms | Pause after the start before retention and checkpoints begin.
log.local.retention.bytes | Bytes of a tiered partition that stay on the broker's disk.
log.local.retention.ms | Time for which segments of a tiered partition stay on the broker's disk.
log.message.downconversion.enable | Whether batches are converted for consumers of older message
    formats.
log.message.timestamp.after.max.ms | How far the timestamp of a record may be ahead of the broker's
    clock.
log.message.timestamp.before.max.ms | How far the timestamp of a record may be behind the broker's
    clock.
log.message.timestamp.difference.max.ms | Both limits of timestamps in one, in releases before 4.0.
log.message.timestamp.type | Whether records keep the producer's timestamp or get the time of the
    append.
log.retention.bytes | Bytes of a partition above which old segments are deleted; -1: no limit.
log.retention.check.interval.ms | Interval between checks for segments to delete.
log.retention.hours | The same as log.retention.ms in hours, where neither of the others is set.
log.retention.minutes | The same as log.retention.ms in minutes, where that is not set.
log.retention.ms | Age at which segments are deleted; -1: no limit.
log.roll.hours | The same as log.roll.ms in hours, where that is not set.
log.roll.ms | Age at which the active segment is closed.
log.segment.bytes | Size at which the active segment is closed.
max.compaction.lag.ms | Longest time for which a record may wait for compaction.
max.connection.creation.rate | New connections that the broker accepts per second.
max.connections | Connections that the broker keeps at the same time.
max.connections.per.ip | Connections that the broker keeps from one address.
max.connections.per.ip.overrides | Other limits for single addresses, as address:limit.
max.in.flight.sequence.number.per.connection | How far a producer's sequence number may be ahead (a
    setting of kraftsim).
max.incremental.fetch.session.cache.slots | Fetch sessions that the broker caches.
max.message.bytes | Size of the largest batch that the topic accepts.
max.request.partition.size.limit | Most partitions in one answer to DescribeTopicPartitions.
message.downconversion.enable | Whether batches are converted for consumers of older message
    formats.
message.max.bytes | Size of the largest batch that topics accept.
message.timestamp.after.max.ms | How far the timestamp of a record may be ahead of the broker's
    clock.
message.timestamp.before.max.ms | How far the timestamp of a record may be behind the broker's
    clock.
message.timestamp.difference.max.ms | Both limits of timestamps in one, in releases before 4.0.
message.timestamp.type | Whether records keep the producer's timestamp or get the time of the
    append.
metadata.log.dir | Directory of the metadata log; without it the first of log.dirs.
metadata.log.max.record.bytes.between.snapshots | Bytes of metadata records after which a snapshot
    is written.
metadata.log.max.snapshot.interval.ms | Longest time between two snapshots while the metadata log
    grows; 0: no limit.
metadata.log.segment.bytes | Size at which a segment of the metadata log is closed.
metadata.log.segment.ms | Age at which a segment of the metadata log is closed.
metadata.max.idle.interval.ms | Time without records after which the controller writes a no-op
    record; 0: never.
metadata.max.retention.bytes | Bytes of metadata log and snapshots above which old ones are deleted.
metadata.max.retention.ms | Age at which metadata log segments and snapshots are deleted.
min.cleanable.dirty.ratio | Share of uncompacted bytes from which the log is compacted.
min.compaction.lag.ms | Shortest time for which a record is left uncompacted.
min.insync.replicas | Replicas that must be in sync for a write with acks=all.
node.id | Id of the node in the cluster.
num.partitions | Number of partitions of a topic that is created without a value.
num.replica.fetchers | Connections per leader on which the broker fetches.
offset.metadata.max.bytes | Longest text that may be committed with an offset.
offsets.commit.timeout.ms | Time for which a commit waits for the replicas of its partition.
offsets.load.buffer.size | Bytes per read while a group coordinator loads its partition.
offsets.retention.check.interval.ms | Interval between checks for expired offsets.
offsets.retention.minutes | Time for which the offsets of an empty group are kept.
offsets.topic.compression.codec | Codec of the batches in __consumer_offsets, by number.
offsets.topic.num.partitions | Number of partitions of __consumer_offsets.
offsets.topic.replication.factor | Number of replicas of __consumer_offsets.
offsets.topic.segment.bytes | Segment size of __consumer_offsets.
port | Port that a broker up to 2.8 listens on; listeners takes precedence.
process.roles | What the node is: broker or controller; none: a broker in ZooKeeper mode.
producer.id.expiration.check.interval.ms | Interval between checks for idle producer ids.
producer.id.expiration.ms | Time without a write after which a partition removes a producer id.
quota.window.num | Number of samples that measure clients.
quota.window.size.seconds | Length of one such sample in seconds.
remote.fetch.max.wait.ms | Longest time that a Fetch waits for the remote store.
remote.log.copy.disable | Whether copies of the topic to the remote store are stopped.
remote.log.manager.copy.max.bytes.per.second | Bytes that the broker copies to the remote store per
    second.
remote.log.manager.copy.quota.window.num | Number of samples that measure copies to the remote
    store.
remote.log.manager.copy.quota.window.size.seconds | Length of one such sample in seconds.
remote.log.manager.fetch.max.bytes.per.second | Bytes that the broker reads from the remote store
    per second.
remote.log.manager.fetch.quota.window.num | Number of samples that measure reads from the remote
    store.
remote.log.manager.fetch.quota.window.size.seconds | Length of one such sample in seconds.
remote.log.manager.task.interval.ms | Interval between checks for segments to copy to or delete from
    the remote store.
remote.log.manager.thread.pool.size | Number of partitions that are tiered at the same time.
remote.log.metadata.custom.metadata.max.bytes | Most bytes of its own that a remote store may add to
    the metadata of a segment.
remote.log.metadata.manager.listener.name | Listener over which the metadata of remote segments is
    read and written.
remote.log.reader.max.pending.tasks | Reads from the remote store that may wait.
remote.log.storage.manager.class.name | Remote store in use.
remote.log.storage.system.enable | Whether the broker has tiered storage.
remote.storage.enable | Whether the topic is tiered.
replica.alter.log.dirs.io.max.bytes.per.second | Bytes per second that moves between log directories
    may copy.
replica.fetch.backoff.ms | Pause of a follower after a failed Fetch.
replica.fetch.max.bytes | Bytes per partition that one Fetch of a follower requests.
replica.fetch.min.bytes | Bytes for which the leader waits before it answers a follower.
replica.fetch.response.max.bytes | Bytes that one Fetch of a follower requests in total.
replica.fetch.wait.max.ms | Longest time that the leader waits before it answers a follower.
replica.high.watermark.checkpoint.interval.ms | Pause between two checkpoints of high watermarks.
replica.lag.time.max.ms | Time without catching up after which a follower leaves the ISR.
replica.selector.class | Class that chooses the replica from which a consumer reads.
replica.socket.timeout.ms | Timeout of a request of a follower to the leader.
replication.quota.window.num | Number of samples that measure throttled replication.
replication.quota.window.size.seconds | Length of one such sample in seconds.
request.timeout.ms | Timeout of a request to another node.
retention.bytes | Bytes of a partition above which old segments are deleted; -1: no limit.
retention.ms | Age at which segments are deleted; -1: no limit.
sasl.enabled.mechanisms | SASL mechanisms that listeners offer.
sasl.mechanism.controller.protocol | SASL mechanism with which nodes log in to controllers.
sasl.mechanism.inter.broker.protocol | SASL mechanism with which brokers log in to brokers.
sasl.server.max.receive.size | Size of the largest message that is accepted before a login is
    complete.
security.inter.broker.protocol | Security protocol whose name is that of the listener on which
    brokers reach each other.
segment.bytes | Size at which the active segment is closed.
segment.index.bytes | Size of an index at which its segment is closed.
segment.ms | Age at which the active segment is closed.
share.assignment.interval.ms | Shortest time between two assignments of this share group.
share.auto.offset.reset | Where this share group starts on a partition that it has not read: latest,
    earliest, or a time ago.
share.coordinator.cold.partition.snapshot.interval.ms | Time without a write after which a
    share-partition gets a snapshot.
share.coordinator.load.buffer.size | Bytes per read while a share coordinator loads its partition.
share.coordinator.snapshot.update.records.per.snapshot | Number of updates of a share-partition
    between two snapshots.
share.coordinator.state.topic.compression.codec | Codec of the batches in __share_group_state, by
    number.
share.coordinator.state.topic.min.isr | Replicas of __share_group_state that must be in sync for a
    write.
share.coordinator.state.topic.num.partitions | Number of partitions of __share_group_state.
share.coordinator.state.topic.prune.interval.ms | Interval between deletions of the records of
    __share_group_state that are not needed any more.
share.coordinator.state.topic.replication.factor | Number of replicas of __share_group_state.
share.coordinator.state.topic.segment.bytes | Segment size of __share_group_state.
share.coordinator.write.timeout.ms | Time for which a share coordinator waits until a write is
    replicated.
share.delivery.count.limit | Most deliveries of one record to this share group.
share.heartbeat.interval.ms | Heartbeat interval of the members of this share group.
share.isolation.level | Whether records of open and aborted transactions are delivered to this share
    group.
share.partition.max.record.locks | Most records of one partition that are acquired or delivered out
    of order in this share group.
share.record.lock.duration.ms | Time for which a member of this share group acquires records.
share.renew.acknowledge.enable | Whether members of this share group may renew their acquisitions.
share.session.timeout.ms | Time without a heartbeat after which a member of this share group is
    removed.
socket.listen.backlog.size | Connections that may wait to be accepted.
socket.request.max.bytes | Size of the largest request that the node accepts.
ssl.cipher.suites | Cipher suites that listeners with TLS accept; empty: those of the TLS library.
ssl.enabled.protocols | Versions of TLS that listeners accept.
ssl.principal.mapping.rules | How a certificate's name becomes a principal; only DEFAULT is
    accepted.
streams.assignment.interval.ms | Shortest time between two assignments of this streams group.
streams.assignor.name | Task assignor of this streams group.
streams.heartbeat.interval.ms | Heartbeat interval of the members of this streams group.
streams.initial.rebalance.delay.ms | Time for which the first assignment of this streams group waits
    for more members.
streams.num.standby.replicas | Number of standby tasks for each task of this streams group.
streams.rack.aware.assignment.tags | Tags of clients over whose values this streams group spreads
    standby tasks.
streams.session.timeout.ms | Time without a heartbeat after which a member of this streams group is
    removed.
super.users | Principals that are allowed everything, separated by semicolons.
telemetry.max.bytes | Most bytes of compressed metrics that a client may push at once.
transaction.abort.timed.out.transaction.cleanup.interval.ms | Interval between checks for
    transactions that have timed out.
transaction.max.timeout.ms | Longest transaction timeout that a producer may request.
transaction.partition.verification.enable | Whether a leader asks the coordinator if a partition
    belongs to the transaction.
transaction.remove.expired.transaction.cleanup.interval.ms | Interval between checks for expired
    transactional ids.
transaction.state.log.load.buffer.size | Bytes per read while a transaction coordinator loads its
    partition.
transaction.state.log.min.isr | Replicas of __transaction_state that must be in sync for a write.
transaction.state.log.num.partitions | Number of partitions of __transaction_state.
transaction.state.log.replication.factor | Number of replicas of __transaction_state.
transaction.state.log.segment.bytes | Segment size of __transaction_state.
transaction.two.phase.commit.enable | Whether producers may take part in a two-phase commit.
transactional.id.expiration.ms | Time without a transaction after which a transactional id is
    removed.
unclean.leader.election.enable | Whether a replica outside of the ISR may become leader when no
    other is alive.
unclean.leader.election.interval.ms | Interval between checks for partitions that need an unclean
    election.
zookeeper.connect | Addresses of ZooKeeper, with an optional chroot path at the end.
zookeeper.connection.timeout.ms | Time for which the start waits for ZooKeeper.
zookeeper.metadata.migration.enable | Whether the node takes part in the migration from ZooKeeper to
    KRaft.
zookeeper.session.timeout.ms | Session timeout in ZooKeeper.
zookeeper.set.acl | Whether the znodes that the node creates have access rules.
""".replace(CONTINUED, " ")
"""One row per line: the setting, and its meaning."""
SEPARATOR = " | "


def meaning_of(name: str) -> str | None:
    """Return the description of a broker or topic setting, None for one without effect."""
    return _meanings().get(name)


@cache
def _meanings() -> dict[str, str]:
    rows = (line.partition(SEPARATOR) for line in TABLE.strip().splitlines())
    return {name: sentence for name, _, sentence in rows}

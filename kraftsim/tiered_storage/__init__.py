"""Tiered storage: closed segments of a log are copied to an object store, and deleted from the
brokers' disks sooner (KIP-405).

The leader of a tiered partition copies its closed segments below the last stable offset, oldest
first, with their indexes, their leader epochs and their producer snapshot. What exists remotely is
recorded in `__remote_log_metadata`, which every broker reads. Consumers read old offsets from
there, and a follower that falls behind the local log of its leader starts its own log after the
remote segments. In Kafka: kafka.log.remote.RemoteLogManager,
org.apache.kafka.server.log.remote.metadata.storage.*, kafka.server.TierStateMachine; quotas are
KIP-956.

Invariants. A local segment is deleted only when its copy is complete and recorded. A segment is
announced before it is copied or deleted, and confirmed after, so the next leader completes or
discards what was interrupted. An offset is looked up together with the leader epoch that the
reader's own log has for it: a record that was truncated is never found. A follower that starts
after the remote segments has the leader epochs and the producer state of their end; with wrong
producer state it would append a batch twice after a failover.

The path of a copy:

    tiered_storage   `_run_task`, periodically for each partition: what is copied, what expires
    rules_copying    `candidates` decides which segments are due
    archiving        `copy_due`: announces the segment, uploads its files, confirms it
    metadata_log     `publish` appends the event to the leader of its metadata partition, and waits
                     until it has been read back
    remote_store     writes the objects, under Kafka's names of LocalTieredStorage
    archiving        advances `remote_end_offset`: the local segment may now be deleted

The path of a read: `partitions/broker_handlers/k01_fetch` notices that the offset is below the
local log and makes a `RemoteWish`; `remote_reader` finds the segment in the catalogue, the position
in its indexes (`rules_reading`), and reads whole batches; `tiered_storage` fills the response row.
A follower gets OFFSET_MOVED_TO_TIERED_STORAGE instead and runs `follower_rebuild`.

What is hard. Segments of several leaders overlap, because a leader may copy what its predecessor
has copied, with other boundaries. A segment may have no producer snapshot: brokers before 2.8 kept
two. Kafka then copies neither it nor any later segment; `SnapshotRemedy` in `rules_copying` has
this and the remedies that were proposed or rejected, and `rules_boundary_window` computes when an
empty snapshot leads to a duplicate. A leader that is truncated or deposed while it copies must not
count the copy as its own (`truncation_count`).

Releases. 3.6.0 to 3.7.0 notice a missing snapshot before the copy is announced, 3.7.1 and later
after (KAFKA-16209).

Read `rules_segments`, `rules_copying`, `archiving`, `remote_reader`, `follower_rebuild`.
docs/tiered-storage.md has the settings and figures.
"""

"""Partitions: a log on one broker, its replication between leader and followers, and what readers
see of it.

A leader appends batches of producers; followers fetch them; what all in-sync replicas have is below
the high watermark, and consumers read up to there, or up to the last stable offset if they read
committed records only. The protocol is Produce, Fetch, ListOffsets, OffsetForLeaderEpoch,
DeleteRecords and, to the controller, AlterPartition (KIP-98, KIP-101, KIP-227, KIP-279, KIP-320,
KIP-392, KIP-497, KIP-966). In Kafka: kafka.cluster.Partition, kafka.server.ReplicaManager, and
org.apache.kafka.storage.internals.log.

Invariants. Offsets are contiguous, and a batch is appended once (`kraftsim/producer_state`). A
record below the high watermark is on all in-sync replicas; the high watermark never decreases
within a leader epoch. A follower truncates only what diverges from its leader. State changes after
the bytes are written, never before: a failed write leaves no trace (KAFKA-6683). A log ends, after
any crash, with its last valid batch, and compaction changes no offset.

The path of a Produce with acks=all:

    broker_handlers/k00_produce   `handle`: validates large records in a thread, has transactions
                                  verified, then appends partition by partition
    rules_append                  `client_batch` returns the one batch of the row, or why there is
                                  none
    hosted_partition              `append`: asks the rules, writes, then applies
    rules_replica_log             `decide_append`: leader and ISR, then
    rules_append                  `decide_batch`: checks the batch, converts it to the topic's codec
                                  and assigns its offsets; then duplicate, gap, or next sequence
    log                           writes the received bytes, with base offset and leader epoch set
    rules_replica_log             `apply_append` changes producer state, `advance_alone` the high
                                  watermark where no follower is awaited
    k00_produce, rules_leader     `DelayedProduce` waits until fetches of followers (`LeaderState`)
                                  have advanced the high watermark

The path of a follower's fetch: `replication` follows the metadata, `fetcher` sends one Fetch after
the other to a leader, `rules_follower.Following` evaluates each response (accept, truncate,
restart, look for offsets), and `HostedPartition.copy` appends. On the leader the same Fetch is the
follower's progress, and `IsrChanges` reports a changed ISR to the controller, which decides.

The files around a log: `log_directory` places partitions on disks, `partition_opening` reads them
after a crash, `segment_files`, `producer_snapshots` and `checkpoints` are the segments and the
small files beside them, `log_cleaner` compacts (with `segment_swap`, which any restart can
complete), `replica_moves` moves a replica to another directory, `LogGate` in `log_reading` excludes
these from each other.

What is hard. A fetched response may describe a log that has been truncated since: `Following`
compares the request with what it would send now. An ISR change is pending until the controller
answers, and both outcomes must be safe meanwhile: joining replicas count at once, leaving ones
still count. A Fetch that waits must see aborts that happen while it waits, so the aborted list is
built at each read (KAFKA-5376). Scanning a compressed batch can take longer than other clients
should wait, so its cost is estimated before (`rules_reading`).

Releases. Message sets of Produce 0 to 2 and Fetch 0 to 3 are converted (`rules_append`,
`fetch_responses`). Since Fetch 12 a follower is compared by the epoch of its last record; before,
it sends OffsetForLeaderEpoch first (`fetcher`). 3.7 bounds min.insync.replicas by the replication
factor and holds the high watermark back below it; 2.8 keeps a producer snapshot of every segment.

Read `rules_log`, `rules_replica_log`, `rules_replica`, `rules_leader`, `rules_follower`,
`hosted_partition`, then `partitions` and the handlers; compaction (`rules_cleaning`) and
directories stand alone.
"""

"""Share groups: consumers that take records of the same partitions one by one, each record to one
of them at a time (KIP-932).

The state of a share-partition, a partition as one share group reads it, is what was acquired,
acknowledged and given up after its start offset. Its leader, which is the leader of the partition,
decides about it in memory; the share coordinator stores it durably in `__share_group_state`; the
group coordinator says when a share-partition begins and ends. In Kafka:
org.apache.kafka.coordinator.share.*, org.apache.kafka.server.share.*.

The share coordinator. The coordinator of a share-partition is the leader of the partition of
`__share_group_state` that "group:topicId:partition" maps to. Five requests reach it, all from
other brokers: Initialize and Delete from group coordinators, Read and Write from leaders of
partitions, ReadSummary from group coordinators that describe offsets. `persister` is the client
side: the four others see the share coordinator only through the protocol `Persister`.

Invariants. Two epochs fence. The state epoch is raised by the group coordinator whenever the state
begins again; the leader epoch is that of the partition, and even a read raises it, so that a former
leader writes nothing after its successor has read. What is acknowledged is replicated. A
share-partition is its last ShareSnapshot record and the ShareUpdate records behind it, merged in
order; everything in front of the oldest last snapshot of the log is redundant, and deleted.

The path of a state, WriteShareGroupState for example:

    state_persister               looks up the coordinator, sends one request per group and kind
    rules_persister               what is tried again, and when
    broker_handlers/share_states  an operation per partition; `state_answers` joins the rows
    share_coordinator             `coordinated` returns the partition; `CoordinatedShares.ask`
                                  decides, appends and replays in one step, and answers when
                                  everything before is replicated
    rules_share_coordinator       `ShareShard.decide_write` fences, and returns the record
    rules_share_batches           combines the batches of a state

What is hard. A refusal waits for the replicas, too: it may rest on a record that is not committed.
A write that times out stays in the log and in memory. A batch that cannot be combined must be
refused before it is appended, because replay cannot refuse.

The leader of a share-partition. It is loaded with the first fetch of a member, and dropped with the
leadership, the topic, or the last member. What its members have acquired is known to it alone: the
next leader delivers it again. A member's requests count the epochs of its share session, which is
bound to its connection.

The path of a record, from a fetch to the start offset:

    share_requests                decodes, checks the session, joins both results of a ShareFetch
    share_partitions              finds or loads the share-partition, stores changes, ends locks
    share_fetching                waits for min_bytes, reads, and lets the rules acquire
    rules_share_acquisition       which records of what was read; how many of suspected ones
    rules_share_acknowledgement   what a member says of them; what it leaves behind
    rules_share_partition         the states; `on_written` confirms changes or takes them back,
                                  `move_start_offset` passes what is done
    rules_share_records           the state of an offset, and the batches in flight

Invariants. A record has one member at a time; its delivery count rises by one with each acquisition
and ends at the limit; the start offset passes only what is done, and never goes back; what is
stored as done is not delivered again (`invariants/leaders`).

What is hard. A batch has one state until something happens to a part of it. A lock may end while
an acknowledgement is being stored: if that fails, the record is available at once. Writes of one
share-partition go out one after another, and a share-partition that was dropped is read again only
when its last write has ended. Between the states that a former leader stored there may be records
of which nothing is known: they are available, and the start offset waits for them.
"""

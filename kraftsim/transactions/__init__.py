"""Transactions: records in several partitions, and committed offsets, become visible together or
not at all.

A producer with a transactional id writes to partitions on several brokers. Its transaction
coordinator, the leader of the partition of `__transaction_state` that the id maps to, records which
partitions take part, decides once whether the transaction commits or aborts, and then has a marker
written to each of them (KIP-98). The protocol is InitProducerId, AddPartitionsToTxn,
AddOffsetsToTxn, TxnOffsetCommit and EndTxn from the producer, WriteTxnMarkers from the coordinator,
and, since KIP-890, AddPartitionsToTxn with verify_only from partition leaders. In Kafka this is
org.apache.kafka.coordinator.transaction.* and kafka.server.AddPartitionsToTxnManager.

Invariants. One decision: once PREPARE_COMMIT or PREPARE_ABORT is on all in-sync replicas, no
failure changes it, and the next coordinator completes it. Every marker agrees with the decision of
its coordinator. A transactional id has at most one pending transition; meanwhile all requests get
CONCURRENT_TRANSACTIONS. A fenced producer writes nothing: each InitProducerId and each forced abort
bumps the epoch, and markers carry it to the partitions. No transaction stays open forever: the
coordinator aborts it after its timeout.

The path of an EndTxn:

    broker_handlers/transaction     decodes into an EndTxnInput, and decides nothing
    transaction_coordinator         `end` finds the partition (`transaction_partitions`), or returns
                                    NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS
    rules_coordinator               `TransactionRules.decide_end` decides: facts, `Already`, a
                                    refusal, or NeedsProducerId (then `end` runs again with one)
    transaction_partitions          `store` makes the facts pending, appends the record, and applies
                                    them when it is replicated; only then the producer is answered
    rules_markers, marker_sender    `MarkerQueue` lists markers by broker, `MarkerSender` sends
                                    WriteTxnMarkers, to its own broker over the wire, too
    broker_handlers/k27_write_...   the leader checks epochs and appends the control batch
    transaction_coordinator         `complete` stores COMPLETE_COMMIT or COMPLETE_ABORT when all
                                    markers are acknowledged

The other direction is verification: a partition leader that gets the first transactional batch of a
producer asks the coordinator whether the partition is in the transaction (`verification`, the
queue in `rules_markers`); since Produce 12 the same request adds it.

What is hard. A response is sent when the prepare record is replicated, long before the markers are;
so every later request must meet the pending completion, and a new leader of the partition must read
even records above the high watermark, which may be committed (`TransactionPartitions._load`). A
deposed coordinator may still send markers: partitions remember the coordinator epoch and refuse
older ones. Epochs end at 32767, of which the last is reserved for fencing: then the id continues
with another producer id, and a retry must be distinguished from a new request by its epoch alone. A
verification may be answered after the transaction has ended; its guard must be invalid by then
(KAFKA-14884, in `kraftsim/producer_state/rules_manager.py`).

Releases. 3.6 verifies transactions, 3.8 refuses with TRANSACTION_ABORTABLE what older ones refuse
with INVALID_TXN_STATE. With transaction.version 2 (4.0) every EndTxn bumps the epoch. 4.0 prefers
CONCURRENT_TRANSACTIONS to a fence while a completion is pending (KAFKA-18575), 4.1 clears the start
time at InitProducerId.

Two-phase commit (KIP-939) is a laboratory: `rules_two_phase_commit` keeps an open transaction for
the next producer, which no release does.

Read `rules_state` first (states, `TransactionEntry.begin` and `finish`), then `rules_coordinator`,
`transaction_coordinator`, `rules_markers`, and last the handlers.
"""

"""Producer state: what a partition remembers of each producer, to append a retried batch once and
to reject a gap.

For each producer id the state has the epoch and the last five batches (base and last sequence,
offset, timestamp). A batch is checked before it is appended (`rules_manager`): the same epoch and
sequence numbers as one of the five is a duplicate, whose offset is returned; the next sequence is
appended; anything else is OUT_OF_ORDER_SEQUENCE_NUMBER, and a smaller epoch INVALID_PRODUCER_EPOCH.
The state changes only when the batch is in the log: changing it before was KAFKA-6683. It is stored
in a snapshot file beside the log, and rebuilt from the log behind the snapshot after a crash.

    rules_entries  entries, sequence arithmetic, the result of a check, the snapshot file
    rules_manager  the check, open transactions, verification (KIP-890), the variant that keeps the
    latest batch only
"""

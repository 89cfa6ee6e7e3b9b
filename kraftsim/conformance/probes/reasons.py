"""Reasons why newer releases respond differently than 3.9, each one once."""

START_IS_FORGOTTEN = (
    "On InitProducerId, 3.9 keeps the start time of the last transaction; 4.x clears it "
    "(TransactionMetadata)."
)
FENCE_REMEMBERS = (
    "In 4.x a fence stores the fenced epoch as the last one, so that its producer can bump the "
    "epoch and continue, as KIP-588 intended; 3.9 does not store it, and the producer is fenced "
    "for good."
)
END_BEFORE_EPOCH = (
    "4.x checks whether a transaction is completing before it checks the epoch, since EndTxn "
    "itself may have bumped it (KIP-890)."
)
OPEN_IN_ITS_EPOCH_ONLY = (
    "3.9 skips verification if a transaction of the id is open, whatever the epoch; 4.x accepts "
    "only the epoch of the open one (KIP-890)."
)
NO_GROUP_FOR_A_GENERATION = (
    "The coordinator of 4.x (KIP-848) creates no group for a commit with a generation; 3.9 "
    "creates one first, and then finds no such member in it."
)
LEVEL_TWO = (
    "A new cluster of 4.x has transaction.version 2 (KIP-890); ApiVersions 3 cannot say that a "
    "feature may be at 0, so it leaves the range out."
)
ID_BEFORE_IS_FORGOTTEN = (
    "4.x drops the previous producer id when a transaction starts, and fences producers that use "
    "it; 3.9 treats them as the same producer."
)
ANOTHER_ID_AT_ONCE = (
    "With transaction.version 2 an abort over a producer's head after its last epoch gives the "
    "name another id at once (KAFKA-20090); 3.9 stops at 32767, and the next InitProducerId "
    "returns the id."
)
NOTHING_LEFT_TO_FENCE_WITH = (
    "3.9 does not abort if no epoch is left to fence with, and the transaction stays open; 4.x "
    "aborts with the same epoch."
)

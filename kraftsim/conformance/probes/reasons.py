"""Why newer releases answer some probes otherwise than 3.9, each reason once."""

START_IS_FORGOTTEN = "3.9 keeps the start of the transaction before when an id is taken again; 4.x forgets it (TransactionMetadata)."
FENCE_REMEMBERS = (
    "In 4.x a fence keeps the epoch that it ends as the last one, so that its owner can ask for the next one and go on, as KIP-588 wanted it; 3.9"
    " forgets it, and the owner is fenced for good."
)
END_BEFORE_EPOCH = "4.x looks whether a transaction is being ended before it looks at the epoch, since the end itself may have bumped it (KIP-890)."
OPEN_IN_ITS_EPOCH_ONLY = (
    "3.9 asks nobody where a transaction of the id is open already, whatever the epoch; 4.x lets only the epoch of the open one go on (KIP-890)."
)
NO_GROUP_FOR_A_GENERATION = (
    "The coordinator of 4.x (KIP-848) makes no group for a commit that names a generation; 3.9 makes one first, and then finds no such member in it."
)
LEVEL_TWO = (
    "A new cluster of 4.x has transaction.version 2 (KIP-890); ApiVersions 3 cannot say that a feature may be at 0, so it leaves the range out."
)
ID_BEFORE_IS_FORGOTTEN = (
    "4.x forgets the id before the present one when a transaction begins, and fences whoever still has it; to 3.9 it is the same producer."
)
ANOTHER_ID_AT_ONCE = (
    "With transaction.version 2 an abort over a producer's head after its last epoch gives the name another id at once (KAFKA-20090); 3.9 stops at"
    " 32767, and whoever asks next gets the id."
)
NOTHING_LEFT_TO_FENCE_WITH = "3.9 refuses to abort where no epoch is left to fence with, and the transaction goes on; 4.x aborts at the same epoch."

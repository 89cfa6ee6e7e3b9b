"""The names of the variants that settings choose between."""

BY_PRODUCE, BY_API_VERSIONS, BY_INIT_PRODUCER_ID = "produce", "api-versions", "init-producer-id"
"""The responses that announce a window; with the last two the broker advertises a special version
of Produce.
"""


FIVE_BATCHES, LATEST_BATCH, LATEST_BATCH_46, ANNOUNCED_WINDOW = (
    "five-batches",
    "latest-batch",
    "latest-batch-46",
    "latest-batch-announced",
)


UNKNOWN_PRODUCERS = ("as-released", "accepted", "unknown-producer-id", "out-of-order")
"""How writes of an unknown producer are handled: the first as in the release."""


AS_RELEASED, EVERY_SEGMENT, NEWEST_TWO, REPLAY_YOUNGER = (
    "as-released",
    "every-segment",
    "newest-two",
    "replay-younger",
)
"""Which segments keep producer snapshots: the first as in the release, the third as before 2.8.
With the last, a log that has lost all snapshots is replayed only for producer.id.expiration.ms.
"""


ENDING, ON_DEMAND, EAGER = "ending", "on-demand", "eager"
"""Alternatives to the release's producer-id block allocation: stop the broker on an authorization
failure; allocate late; allocate early.
"""


BLOCK_CHANNELS = ("shared-channel", "own-channel", "numbered", "after-replay", "own-disk")
"""The sources of blocks, the first as released: see `kraftsim.producer_ids.broker`."""


RESIZABLE, REPEATING, LAST_ID = "resizable", "repeating", "last-id"
"""Alternative block allocators of a controller: variable block size, idempotent requests, and
records that contain a block's last id.
"""

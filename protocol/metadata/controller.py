"""Records that the active controller writes of its own accord: blocks of producer ids, signs of
life, and the limits of metadata transactions.

Source: KIP-730, KIP-835, KIP-868; the JSON definitions named at each record.
"""

from protocol.schema import int32, int64, message, string

# --------------------------------------------------------------------------------------------------
# ProducerIdsRecord (15): all producer ids below next_producer_id are allocated, the last block of
# them to this broker.
#
# next_producer_id is the first id of the *following* block: exclusive. 3.0 and 3.1 called the field
# ProducerIdsEnd and described it as inclusive, but wrote the same value.
# Source: KIP-730, KAFKA-15552 (what the mix-up did in a migration); ProducerIdsRecord.json.


@message(key=15, kind="metadata", versions="0", flexible="0+")
class ProducerIdsRecord:
    """The broker of the request, with its broker epoch."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    next_producer_id: int = int64()


# --------------------------------------------------------------------------------------------------
# NoOpRecord (20): the active controller is alive; written if nothing else was for half a second
# (3.3).
#
# Source: KIP-835, NoOpRecord.json.


@message(key=20, kind="metadata", versions="0", flexible="0+")
class NoOpRecord:
    """Advances the high watermark and has no other effect."""


# --------------------------------------------------------------------------------------------------
# BeginTransactionRecord (23): the following records take effect only when the metadata transaction
# ends (3.6).
#
# Source: KIP-868, BeginTransactionRecord.json.


@message(key=23, kind="metadata", versions="0", flexible="0+")
class BeginTransactionRecord:
    """The name is for logging, as in "Bootstrap records"."""

    name: str | None = string(tag=0, tagged="0+", nullable="0+", default=None)


# --------------------------------------------------------------------------------------------------
# EndTransactionRecord (24): the metadata transaction takes effect.
#
# Source: KIP-868, EndTransactionRecord.json.


@message(key=24, kind="metadata", versions="0", flexible="0+")
class EndTransactionRecord:
    """Transactions do not nest, so there is no name."""


# --------------------------------------------------------------------------------------------------
# AbortTransactionRecord (25): the metadata transaction is discarded.
#
# Written by a new active controller that finds an open one.
# Source: KIP-868, AbortTransactionRecord.json.


@message(key=25, kind="metadata", versions="0", flexible="0+")
class AbortTransactionRecord:
    """The reason is for logging."""

    reason: str | None = string(tag=0, tagged="0+", nullable="0+", default=None)

"""AbortTransactionRecord (25): the metadata transaction is discarded.

Written by a new active controller that finds an open one.
Source: KIP-868, AbortTransactionRecord.json.
"""

from protocol.schema import message, string


@message(key=25, kind="metadata", versions="0", flexible="0+")
class AbortTransactionRecord:
    """The reason is for logging."""

    reason: str | None = string(tag=0, tagged="0+", nullable="0+", default=None)

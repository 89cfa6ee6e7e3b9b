"""EndTransactionRecord (24): the metadata transaction takes effect.

Source: KIP-868, EndTransactionRecord.json.
"""

from protocol.schema import message


@message(key=24, kind="metadata", versions="0", flexible="0+")
class EndTransactionRecord:
    """Transactions do not nest, so there is no name."""

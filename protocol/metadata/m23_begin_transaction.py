"""BeginTransactionRecord (23): the following records take effect only when the metadata transaction
ends (3.6).

Source: KIP-868, BeginTransactionRecord.json.
"""

from protocol.schema import message, string


@message(key=23, kind="metadata", versions="0", flexible="0+")
class BeginTransactionRecord:
    """The name is for logging, as in "Bootstrap records"."""

    name: str | None = string(tag=0, tagged="0+", nullable="0+", default=None)

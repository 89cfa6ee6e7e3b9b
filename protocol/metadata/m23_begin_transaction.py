"""BeginTransactionRecord (23): what follows takes effect only once the metadata transaction ends (3.6).

Source: KIP-868, BeginTransactionRecord.json.
"""

from protocol.schema import message, string


@message(key=23, kind="metadata", versions="0", flexible="0+")
class BeginTransactionRecord:
    """The name is for humans, as in "Bootstrap records"."""

    name: str | None = string(tag=0, tagged="0+", nullable="0+", default=None)

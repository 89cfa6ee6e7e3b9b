"""NoOpRecord (20): the active controller is alive; written if nothing else was for half a second
(3.3).

Source: KIP-835, NoOpRecord.json.
"""

from protocol.schema import message


@message(key=20, kind="metadata", versions="0", flexible="0+")
class NoOpRecord:
    """Advances the high watermark and has no other effect."""

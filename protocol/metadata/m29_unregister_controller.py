"""UnregisterControllerRecord (29): a controller was unregistered (4.4).

Source: UnregisterControllerRecord.json.
"""

from protocol.schema import int32, message


@message(key=29, kind="metadata", versions="0", flexible="0+")
class UnregisterControllerRecord:
    """By its node id."""

    controller_id: int = int32()

"""BrokerRegistrationChangeRecord (17): a broker is fenced or unfenced, starts a controlled
shutdown, or loses a directory (3.3).

v1 adds the controlled shutdown, v2 directories (3.7), v3 cordoned directories (4.3).
Source: KIP-841, KIP-858, KIP-1066; BrokerRegistrationChangeRecord.json.
"""

from protocol.schema import array, int8, int32, int64, message, uuid

UNFENCE = -1
NO_FENCING_CHANGE = 0
FENCE = 1
NO_SHUTDOWN_CHANGE = 0
IN_CONTROLLED_SHUTDOWN = 1


@message(key=17, kind="metadata", versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    """Only changes; an empty list of directories means unchanged."""

    broker_id: int = int32()
    broker_epoch: int = int64()
    fenced: int = int8(tag=0, tagged="0+", default=NO_FENCING_CHANGE)
    in_controlled_shutdown: int = int8(tag=1, tagged="1+", default=NO_SHUTDOWN_CHANGE)
    log_dirs: list[bytes] = array(uuid, tag=2, tagged="2+")
    cordoned_log_dirs: list[bytes] | None = array(
        uuid, tag=3, tagged="3+", nullable="3+", default=None
    )

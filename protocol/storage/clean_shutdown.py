""".kafka_cleanshutdown: marks that the broker closed its logs cleanly, and contains its broker
epoch.

With it, logs are loaded without recovery on startup; without it every log is recovered from its
recovery point. Deleted once the logs are loaded.
Source: KIP-966 (the epoch, 3.7), CleanShutdownFileHandler.
"""

import json

from protocol.malformed import MalformedFile
from protocol.storage.java_integers import parse_int64

FILE = ".kafka_cleanshutdown"
NO_BROKER_EPOCH = -1


def build_clean_shutdown(broker_epoch: int | None) -> bytes:
    """Return the file; without an epoch it is empty, as it was before 3.7."""
    if broker_epoch is None:
        return b""
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def parse_clean_shutdown(data: bytes) -> int:
    """Return the broker epoch, NO_BROKER_EPOCH for an empty file.

    Raises MalformedFile; the existence of the file alone means a clean shutdown.
    """
    if not data:
        return NO_BROKER_EPOCH
    try:
        return parse_int64(str(json.loads(data)["brokerEpoch"]))
    except (ValueError, TypeError, KeyError, RecursionError) as failure:
        raise MalformedFile(FILE, repr(failure)) from failure

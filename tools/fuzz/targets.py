"""The fuzz targets by name: a check of one input, and the seed inputs.

A check raises an exception on a failure. If two readers exist, they must agree; what was read must
round-trip.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from protocol.malformed import MalformedMessage
from protocol.requests import UnsupportedApi
from tools.fuzz import disk_target, message_targets, record_targets

REFUSALS = (MalformedMessage, UnsupportedApi)
"""The errors that external input may raise."""


@dataclass(frozen=True, slots=True)
class Target:
    """Something that reads bytes."""

    what: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]


TARGETS: Mapping[str, Target] = {
    "requests": Target(
        "a connection's input: frames, request head, body",
        message_targets.check_requests,
        message_targets.request_seeds,
    ),
    "responses": Target(
        "responses of any API and version",
        message_targets.check_response,
        message_targets.response_seeds,
    ),
    "data": Target(
        "records of metadata, of coordinators, and in control batches",
        message_targets.check_data,
        message_targets.data_seeds,
    ),
    "batches": Target(
        "record batches and message sets, read and converted",
        record_targets.check_batches,
        record_targets.batch_seeds,
    ),
    "codecs": Target(
        "compressed blocks of every codec", record_targets.check_codec, record_targets.codec_seeds
    ),
    "disk": Target(
        "files that nodes write: snapshots, checkpoints, indexes",
        disk_target.check_file,
        disk_target.file_seeds,
    ),
}

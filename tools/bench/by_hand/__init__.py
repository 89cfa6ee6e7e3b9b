"""Handwritten codecs of four messages, each for one version, as an expert in struct would write
them.

Same classes, same checks: invalid nulls, lengths beyond the end, unknown tags kept, fields that the
version lacks; malformed input raises MalformedMessage, without a path. They show how much faster
than generated code handwritten code can be.
"""

from protocol.messages.k01_fetch import FetchResponse
from protocol.messages.k03_metadata import MetadataResponse
from protocol.messages.k22_init_producer_id import InitProducerIdResponse
from protocol.messages.k28_txn_offset_commit import TxnOffsetCommitRequest
from tools.bench.by_hand import (
    fetch_response,
    init_producer_id_response,
    metadata_response,
    txn_offset_commit_request,
)
from tools.bench.codec_peers import Jobs

_MODULES = {
    (InitProducerIdResponse, 4): init_producer_id_response,
    (TxnOffsetCommitRequest, 3): txn_offset_commit_request,
    (MetadataResponse, 12): metadata_response,
    (FetchResponse, 12): fetch_response,
}


def jobs_by_hand(cls: type, version: int, frame: bytes) -> Jobs | None:
    """Return the handwritten functions for a message, or None if there are none."""
    module = _MODULES.get((cls, version))
    if module is None:
        return None
    message, position = module.decode(frame, 0)
    assert position == len(frame) and module.encode(message) == frame, (
        f"{cls.__name__} v{version} by hand differs"
    )
    return (module.decode, frame, 0), (module.encode, message)

"""Updates the finalized feature levels of a cluster, as an admin client does during an upgrade.

Source: KIP-584, KIP-778, org.apache.kafka.tools.FeatureCommand (`kafka-features upgrade`).
"""

import asyncio
from collections.abc import Mapping, Sequence

from kraftsim.server.outbound import PeerConnection
from protocol.errors import ErrorCode
from protocol.messages.k57_update_features import (
    SAFE_DOWNGRADE,
    UPGRADE,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

CLIENT_ID = "kraftsim-features"
TIMEOUT_MS = 10_000
RETRY_SECONDS = 0.1
RETRIABLE = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)
"""Retriable: the controller may be moving to another node, or the broker may not know it yet."""


async def update_features(
    brokers: Sequence[tuple[str, int]], levels: Mapping[str, int], *, downwards: bool
) -> dict[str, str]:
    """Send the request to one broker after the other until there is an answer; return the errors of
    features that could not change, by name.
    """
    turn = 0
    while True:
        answer = await _ask(*brokers[turn % len(brokers)], levels, downwards=downwards)
        if answer is not None and ErrorCode(answer.error_code) not in RETRIABLE:
            return _refusals(answer, levels)
        turn += 1
        await asyncio.sleep(RETRY_SECONDS)


def _refusals(answer: UpdateFeaturesResponse, levels: Mapping[str, int]) -> dict[str, str]:
    if answer.error_code != ErrorCode.NONE:
        return {name: _error_text(answer.error_code, answer.error_message) for name in levels}
    return {
        row.feature: _error_text(row.error_code, row.error_message)
        for row in answer.results
        if row.error_code != ErrorCode.NONE
    }


def _error_text(error_code: int, message: str | None) -> str:
    return f"{ErrorCode(error_code).name}: {message or ''}".rstrip(": ")


async def _ask(
    host: str, port: int, levels: Mapping[str, int], *, downwards: bool
) -> UpdateFeaturesResponse | None:
    """Send a request to a broker over a new connection; None if there is no answer."""
    kind = SAFE_DOWNGRADE if downwards else UPGRADE
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level in levels.items()
    ]
    connection = PeerConnection(host, port, client_id=CLIENT_ID)
    try:
        await connection.connect(timeout_ms=TIMEOUT_MS)
        answer = await connection.request(
            UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=updates),
            timeout_ms=TIMEOUT_MS,
        )
    except OSError:
        return None
    finally:
        connection.close()
    assert isinstance(answer, UpdateFeaturesResponse), "UpdateFeatures was asked"
    return answer

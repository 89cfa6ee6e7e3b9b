"""What an upgrade asks of a cluster as an admin client does: to finalize other levels of its features.

Source: KIP-584, KIP-778, org.apache.kafka.tools.FeatureCommand (`kafka-features upgrade`).
"""

import asyncio
from collections.abc import Mapping, Sequence

from kraftsim.node.outbound import PeerConnection
from protocol.errors import ErrorCode
from protocol.messages.k57_update_features import SAFE_DOWNGRADE, UPGRADE, FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

CLIENT_ID = "kraftsim-features"
TIMEOUT_MS = 10_000
RETRY_SECONDS = 0.1
COME_AGAIN = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)
"""The controller may be on its way to another node, or the broker may still look for it."""


async def update_features(brokers: Sequence[tuple[str, int]], levels: Mapping[str, int], *, downwards: bool) -> dict[str, str]:
    """Ask one broker after the other until there is an answer; return why features could not change, by name. Those that are missing did."""
    turn = 0
    while True:
        answer = await _ask(*brokers[turn % len(brokers)], levels, downwards=downwards)
        if answer is not None and ErrorCode(answer.error_code) not in COME_AGAIN:
            return _refusals(answer, levels)
        turn += 1
        await asyncio.sleep(RETRY_SECONDS)


def _refusals(answer: UpdateFeaturesResponse, levels: Mapping[str, int]) -> dict[str, str]:
    if answer.error_code != ErrorCode.NONE:
        return {name: _told(answer.error_code, answer.error_message) for name in levels}
    return {row.feature: _told(row.error_code, row.error_message) for row in answer.results if row.error_code != ErrorCode.NONE}


def _told(error_code: int, message: str | None) -> str:
    return f"{ErrorCode(error_code).name}: {message or ''}".rstrip(": ")


async def _ask(host: str, port: int, levels: Mapping[str, int], *, downwards: bool) -> UpdateFeaturesResponse | None:
    """Ask a broker over a connection of its own; None if there is no answer."""
    kind = SAFE_DOWNGRADE if downwards else UPGRADE
    updates = [FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level in levels.items()]
    connection = PeerConnection(host, port, client_id=CLIENT_ID)
    try:
        await connection.connect(timeout_ms=TIMEOUT_MS)
        answer = await connection.request(UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=updates), timeout_ms=TIMEOUT_MS)
    except OSError:
        return None
    finally:
        connection.close()
    assert isinstance(answer, UpdateFeaturesResponse), "UpdateFeatures was asked"
    return answer

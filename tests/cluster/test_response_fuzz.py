"""A short run of the response fuzzer (docs/conformance.md): maximum-length names for every API, on
broker and controller, with and without ACLs.
"""

import asyncio
from random import Random
from struct import Struct

import pytest

from kraftsim.cluster.embedded import EmbeddedCluster
from protocol.malformed import MalformedMessage
from protocol.messages.k22_init_producer_id import InitProducerIdResponse
from protocol.requests import decode_request, read_request_head, response_chunks
from tools.fuzz.answer_frames import FrameMaker
from tools.fuzz.answer_targets import GUARDED, OPEN, ZOOKEEPER, clusters, prepared
from tools.fuzz.answers import Outcome, ask_each_once, campaign, refuse_each_once, why_wrong

FRAMES = 300
VERSIONS = (0, 5)
HEAD = Struct(">ihhi").unpack_from


@pytest.mark.parametrize("name", [OPEN, GUARDED, ZOOKEEPER])
def test_mutated_responses_never_crash_a_node_and_are_readable(name: str) -> None:
    """Each API gets a request in each version, and one that is cut short. Then half of the frames
    request responses of maximum length, half are valid requests with a few bytes changed; a healthy
    producer is served.
    """
    spec = clusters()[name]
    outcome = Outcome()

    async def run() -> None:
        target = await prepared(name, spec)
        await ask_each_once(target, Random(1), outcome)
        await refuse_each_once(target, Random(1), outcome)
        enough = outcome.frames + FRAMES
        await campaign([target], outcome, Random(2), lambda: outcome.frames < enough)

    with EmbeddedCluster(spec) as cluster:
        asyncio.run(run())
        assert [node for node in spec.node_names if cluster.has_ended(node)] == []
    assert not outcome.broken, outcome.broken[0]
    assert outcome.verdicts["answered"] > FRAMES / 4, "hostile clients reach the handlers"
    assert outcome.healthy_seconds, "the healthy producer was served"


def test_a_response_with_a_wrong_correlation_id_is_detected() -> None:
    maker = FrameMaker(Random(3), {22: VERSIONS}, ["orders"], [bytes(16)])
    frames = [*maker.each_once(), *(maker.next() for _ in range(100))]
    assert {each.version for each in maker.each_once()} == set(range(VERSIONS[0], VERSIONS[1] + 1))
    truncated = list(maker.each_truncated())
    assert {each.version for each in truncated} == set(range(VERSIONS[0], VERSIONS[1] + 1))
    for each in truncated:
        with pytest.raises(MalformedMessage):
            decode_request(read_request_head(each.frame[4:]), each.frame[4:])
    for each in [*frames, *truncated]:
        size, key, version, correlation_id = HEAD(each.frame)
        assert (size + 4, key, version, correlation_id) == (
            len(each.frame),
            22,
            each.version,
            each.correlation_id,
        )
    assert max(len(each.frame) for each in frames) > 32_767, (
        "names of maximum length are among them"
    )
    asked = frames[0]
    right = b"".join(
        response_chunks(22, asked.version, asked.correlation_id, InitProducerIdResponse())
    )[4:]
    assert why_wrong(asked, right) is None
    assert (
        why_wrong(asked, bytes(4) + right[4:]) is not None
        and why_wrong(asked, right[:9]) is not None
    )

"""The chapter on upgrades: derived from events only, and only for runs with an upgrade."""

from kraftsim.analysis.upgrade_chapter import BEFORE_ALL, Counted, Row, upgrade_html, upgrade_of
from kraftsim.clients.invariants.only_retriable_errors import RETRIABLE, TIMING_OUT
from kraftsim.releases.release import releases
from kraftsim.releases.traits import RETRIABLE_BLOCK_TIMEOUT, RPC_PRODUCER_IDS
from protocol.errors import ErrorCode

OF_ONE: list[Row] = [
    {"kind": "NodeStarted", "node": "broker-1", "incarnation": 1, "t_ns": 0, "release": "3.5"},
    {"kind": "NodeStarted", "node": "broker-2", "incarnation": 1, "t_ns": 1, "release": "3.5"},
    {
        "kind": "ProducerIdBlockAllocated",
        "node": "controller-101",
        "incarnation": 1,
        "t_ns": 2,
        "broker_id": 1,
        "given_by": "quorum",
    },
]
UPGRADED: list[Row] = [
    *OF_ONE,
    {
        "kind": "PhaseBegan",
        "node": "harness",
        "incarnation": 1,
        "t_ns": 10,
        "phase": "brokers-to-<3.6>",
    },
    {
        "kind": "NodeStarted",
        "node": "broker-1",
        "incarnation": 2,
        "t_ns": 2_000_000_000,
        "release": "3.6",
    },
    {
        "kind": "ProducerIdBlockAllocated",
        "node": "controller-101",
        "incarnation": 1,
        "t_ns": 2_000_000_001,
        "broker_id": 1,
        "given_by": "broker",
    },
    {
        "kind": "InitProducerIdRefused",
        "node": "broker-1",
        "incarnation": 2,
        "t_ns": 2_000_000_002,
        "error_code": 14,
    },
    {
        "kind": "FeatureLevelChanged",
        "node": "controller-101",
        "incarnation": 1,
        "t_ns": 3_000_000_000,
        "feature": "metadata.version",
        "previous_level": 11,
        "level": 14,
    },
]


def test_a_run_without_an_upgrade_has_no_upgrade_chapter() -> None:
    assert upgrade_of(OF_ONE) is None and upgrade_html(None) == ""


def test_the_chapter_lists_phases_releases_levels_blocks_and_errors() -> None:
    """Blocks and errors belong to the phase in which they occurred."""
    chapter = upgrade_of(UPGRADED)
    assert chapter is not None
    assert [moment.what for moment in chapter.moments] == [
        "starts as 3.5",
        "starts as 3.5",
        "phase brokers-to-<3.6>",
        "starts as 3.6",
        "metadata.version goes from 11 to 14",
    ]
    assert chapter.blocks == (
        Counted(BEFORE_ALL, "for broker 1, allocated by the quorum", 1),
        Counted("brokers-to-<3.6>", "for broker 1, allocated by the broker", 1),
    )
    assert chapter.errors == (
        Counted("brokers-to-<3.6>", "InitProducerIdRefused: COORDINATOR_LOAD_IN_PROGRESS", 1),
    )
    page = upgrade_html(chapter)
    assert "brokers-to-&lt;3.6&gt;" in page and "<td>3.000</td>" in page


def test_a_known_error_of_a_release_is_marked_as_known() -> None:
    """3.0 to 3.3.1 return REQUEST_TIMED_OUT where others return COORDINATOR_LOAD_IN_PROGRESS
    (KAFKA-14417).
    """
    rows: list[Row] = [
        {"kind": "NodeStarted", "node": "broker-1", "incarnation": 1, "t_ns": 0, "release": "3.1"},
        {"kind": "NodeStarted", "node": "broker-2", "incarnation": 1, "t_ns": 1, "release": "3.5"},
        {
            "kind": "InitProducerIdRefused",
            "node": "broker-1",
            "incarnation": 1,
            "t_ns": 2,
            "error_code": 7,
        },
        {
            "kind": "InitProducerIdRefused",
            "node": "broker-2",
            "incarnation": 1,
            "t_ns": 3,
            "error_code": 7,
        },
    ]
    chapter = upgrade_of(rows)
    assert chapter is not None
    known, unknown = (each.what for each in chapter.errors)
    assert known == (
        f"{unknown}, which 3.1 is known to return when no block of ids arrives in time; it "
        "is fatal to a producer"
    )
    assert unknown == "InitProducerIdRefused: REQUEST_TIMED_OUT"


def test_the_invariant_uses_the_error_codes_and_releases_of_kraftsim() -> None:
    """It reads only events, so it has its own lists."""
    assert tuple(sorted(int(error) for error in ErrorCode if error.retriable)) == RETRIABLE
    broker_client = [known for known in releases() if known.has(RPC_PRODUCER_IDS)]
    assert (
        tuple(known.name for known in broker_client if not known.has(RETRIABLE_BLOCK_TIMEOUT))
        == TIMING_OUT
    )

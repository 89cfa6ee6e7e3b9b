"""ListTransactions (66): the transactional ids of a broker, by filters.

Source: KIP-664, KIP-994; TransactionStateManager.listTransactionStates.
"""

import time

from kraftsim.conformance.expect import expect, expect_equal
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from kraftsim.conformance.transactional_id import Producer, TransactionalId
from protocol.api_keys import ApiKey
from protocol.messages.k66_list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

REQUIREMENTS = Requirements("transactions", 10, "ListTransactions")
LISTS = "TransactionStateManager.listTransactionStates"
DURATION_SINCE, PATTERN_SINCE = 1, 2
INVALID_REGULAR_EXPRESSION = 128
REFUSED_BY_RE2 = (
    "a(?=b)",
    "(?<=a)b",
    "(?>a)",
    "(a)\\1",
    "a**",
    "a++",
    "a{1001}",
    "\\C",
    "\\Z",
    "(?P<n>a)(?P<n>b)",
    "[[:foo:]]",
    "(?x)a",
    "(?#a)",
)
"""Backreferences, lookarounds, and other expressions that cannot be matched in linear time, or that
RE2/J does not support.
"""
LONG_MS = 600_000


def listed(
    transactional_id: TransactionalId, version: int, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Send the request to the coordinator of an id."""
    with transactional_id.target.peer(transactional_id.address) as peer:
        return peer.ask(request, version, ListTransactionsResponse)


def names(answer: ListTransactionsResponse) -> list[str]:
    """Return the listed ids."""
    return [row.transactional_id for row in answer.transaction_states]


def _ongoing(target: Target) -> tuple[TransactionalId, Producer]:
    topic, transactional_id = target.topic(), TransactionalId(target)
    producer = transactional_id.producer()
    transactional_id.begin(producer, [(topic.name, 0)])
    return transactional_id, producer


@REQUIREMENTS.that(1, "a coordinator lists its ids with producer id and state", source=LISTS)
def lists(target: Target) -> None:
    transactional_id, producer = _ongoing(target)
    for version in target.versions(ApiKey.LIST_TRANSACTIONS):
        answer = listed(transactional_id, version, ListTransactionsRequest())
        rows = {
            row.transactional_id: (row.producer_id, row.transaction_state)
            for row in answer.transaction_states
        }
        expect_equal(
            (answer.error_code, answer.unknown_state_filters),
            (0, []),
            f"version {version}: error, unknown filters",
        )
        expect_equal(
            rows.get(transactional_id.name),
            (producer[0], "Ongoing"),
            f"version {version}: producer id, state",
        )


@REQUIREMENTS.that(2, "the producer id filter matches producer ids", source=LISTS)
def by_producer_id(target: Target) -> None:
    transactional_id, (producer_id, _) = _ongoing(target)
    for version in target.versions(ApiKey.LIST_TRANSACTIONS):
        answer = listed(
            transactional_id, version, ListTransactionsRequest(producer_id_filters=[producer_id])
        )
        expect_equal(names(answer), [transactional_id.name], f"version {version}")
        answer = listed(
            transactional_id, version, ListTransactionsRequest(producer_id_filters=[1 << 40])
        )
        expect_equal(names(answer), [], f"version {version}: an unknown producer id")


@REQUIREMENTS.that(3, "state filters match exact names", source=LISTS)
def by_state(target: Target) -> None:
    transactional_id, (producer_id, _) = _ongoing(target)
    for version in target.versions(ApiKey.LIST_TRANSACTIONS):
        for states, wanted in (
            (["Ongoing"], True),
            (["Empty", "Ongoing"], True),
            (["Empty", "CompleteCommit"], False),
            (["ongoing"], False),
        ):
            asked = ListTransactionsRequest(state_filters=states, producer_id_filters=[producer_id])
            expect_equal(
                names(listed(transactional_id, version, asked)),
                [transactional_id.name] * wanted,
                f"version {version}: {states}",
            )


@REQUIREMENTS.that(4, "unknown states are returned by name, and match nothing", source=LISTS)
def unknown_states(target: Target) -> None:
    transactional_id, (producer_id, _) = _ongoing(target)
    for version in target.versions(ApiKey.LIST_TRANSACTIONS):
        asked = ListTransactionsRequest(
            state_filters=["Nothing", "ongoing"], producer_id_filters=[producer_id]
        )
        answer = listed(transactional_id, version, asked)
        expect_equal(
            sorted(answer.unknown_state_filters),
            ["Nothing", "ongoing"],
            f"version {version}: unknown filters",
        )
        expect_equal(names(answer), [], f"version {version}: ids")


@REQUIREMENTS.that(
    5,
    "since version 1 only transactions older than the duration filter are listed; a negative one "
    "lists all",
    source="KIP-994",
    since="3.8",
)
def by_duration(target: Target) -> None:
    transactional_id, (producer_id, _) = _ongoing(target)
    time.sleep(0.05)
    for version in target.versions(ApiKey.LIST_TRANSACTIONS, since=DURATION_SINCE):
        for duration_ms, wanted in ((-1, True), (0, True), (10, True), (LONG_MS, False)):
            asked = ListTransactionsRequest(
                producer_id_filters=[producer_id], duration_filter=duration_ms
            )
            expect_equal(
                names(listed(transactional_id, version, asked)),
                [transactional_id.name] * wanted,
                f"version {version}: {duration_ms} ms",
            )


@REQUIREMENTS.that(
    6,
    "since version 2 a pattern must match the whole id; an empty one matches all",
    source="KIP-1152",
    since="4.1",
)
def by_pattern(target: Target) -> None:
    transactional_id, (producer_id, _) = _ongoing(target)
    for version in target.versions(ApiKey.LIST_TRANSACTIONS, since=PATTERN_SINCE):
        for pattern, wanted in (
            (None, True),
            ("", True),
            ("transaction-.*", True),
            ("transaction", False),
            (".*[0-9]", True),
            ("x.*", False),
        ):
            asked = ListTransactionsRequest(
                producer_id_filters=[producer_id], transactional_id_pattern=pattern
            )
            expect_equal(
                names(listed(transactional_id, version, asked)),
                [transactional_id.name] * wanted,
                f"version {version}: {pattern!r}",
            )


@REQUIREMENTS.that(
    7, "an invalid pattern returns INVALID_REGULAR_EXPRESSION", source="KIP-1152", since="4.1"
)
def no_pattern(target: Target) -> None:
    transactional_id = TransactionalId(target)
    for version in target.versions(ApiKey.LIST_TRANSACTIONS, since=PATTERN_SINCE):
        answer = listed(
            transactional_id, version, ListTransactionsRequest(transactional_id_pattern="((")
        )
        expect_equal(
            (answer.error_code, names(answer)),
            (INVALID_REGULAR_EXPRESSION, []),
            f"version {version}: error, ids",
        )


@REQUIREMENTS.that(8, "an initialised id is listed as Empty", source=LISTS)
def empty_ones(target: Target) -> None:
    transactional_id = TransactionalId(target)
    producer_id, _ = transactional_id.producer()
    answer = listed(transactional_id, 0, ListTransactionsRequest(producer_id_filters=[producer_id]))
    expect(bool(answer.transaction_states), "it is not listed")
    expect_equal(answer.transaction_states[0].transaction_state, "Empty", "state")


@REQUIREMENTS.that(
    9,
    "patterns have RE2 syntax: what RE2/J rejects returns INVALID_REGULAR_EXPRESSION",
    source="KIP-1152, com.google.re2j.Pattern",
    since="4.1",
)
def patterns_of_re2(target: Target) -> None:
    transactional_id, (producer_id, _) = _ongoing(target)
    for version in target.versions(ApiKey.LIST_TRANSACTIONS, since=PATTERN_SINCE):
        for pattern in (
            "(?i)TRANSACTION-.*",
            "\\Qtransaction\\E-.*",
            "[[:alpha:]]+-.*",
            "(?:[a-z]+)+-.*",
            "\\pL+-(?P<rest>.*)",
        ):
            asked = ListTransactionsRequest(
                producer_id_filters=[producer_id], transactional_id_pattern=pattern
            )
            expect_equal(
                names(listed(transactional_id, version, asked)),
                [transactional_id.name],
                f"version {version}: {pattern}",
            )
        for pattern in REFUSED_BY_RE2:
            answer = listed(
                transactional_id, version, ListTransactionsRequest(transactional_id_pattern=pattern)
            )
            expect_equal(
                answer.error_code, INVALID_REGULAR_EXPRESSION, f"version {version}: {pattern}"
            )

"""SASL OAUTHBEARER with unsecured tokens: what a node responds to good and bad exchanges."""

import time

import pytest

from kraftsim.conformance.expect import settled
from tests.conformance.bearer_tokens import (
    apache_kafka_with_tokens,
    exchanges,
    expected,
    kraftsim_with_tokens,
    outcome,
    outcomes,
)

START_SECONDS = 30.0


@pytest.mark.parametrize(("release", "is_base64url"), [("4.4", True), ("4.1", False)])
def test_kraftsim_answers_tokens_as_measured(release: str, is_base64url: bool) -> None:
    with kraftsim_with_tokens(release) as (tokens, strict):
        assert outcomes(tokens, strict) == expected(is_base64url=is_base64url)


@pytest.mark.interop
@pytest.mark.parametrize(("release", "is_base64url"), [("4.4.0", True), ("3.9.1", False)])
def test_apache_kafka_answers_tokens_as_measured(release: str, is_base64url: bool) -> None:
    with apache_kafka_with_tokens(release) as (tokens, strict):
        settled(
            lambda: outcome(tokens, exchanges(time.time())["claims: good"])[-1],
            lambda end: end == "served",
            "a broker in Metadata",
            START_SECONDS,
        )
        assert outcomes(tokens, strict) == expected(is_base64url=is_base64url)

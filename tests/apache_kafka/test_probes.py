"""Apache Kafka 3.9.1, the newest Apache Kafka and kraftsim respond the same to all probes, except
for explained differences, as the page shows.
"""

import json

import pytest

from kraftsim.conformance.probes.probe import Probe, are_alike, unexplained
from kraftsim.conformance.probes.table import probes
from tests.apache_kafka.probes import ask, main, subjects
from tools.docs.probes_page import FILE

AT_LEAST = 120


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, list[str]]]:
    """The current responses of all subjects."""
    return {name: ask(name, probes(), prints=False) for name in subjects()}


@pytest.mark.interop
def test_every_difference_has_an_explanation_and_vice_versa(
    found: dict[str, dict[str, list[str]]],
) -> None:
    assert not unexplained(probes(), found)


@pytest.mark.interop
def test_the_page_shows_the_current_responses(found: dict[str, dict[str, list[str]]]) -> None:
    """Otherwise run `make probes` to update it."""
    kept = json.loads(FILE.read_text())
    stale = [
        (name, title)
        for name, responses in found.items()
        for title, answers in responses.items()
        if kept[name].get(title) != answers
    ]
    assert not stale


def test_there_are_enough_probes_and_none_is_a_duplicate() -> None:
    asked = {title: " / ".join(step.words() for step in each.steps) for title, each in probes()}
    assert len(set(asked.values())) == len(asked) >= AT_LEAST


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (["ok", "ok"], ["ok", "ok"], True),
        (["ok", "ok"], ["ok", "48 INVALID_TXN_STATE"], False),
        (["ok", "not offered: END_TXN has 0 to 4"], ["ok", "ok, A epoch 1", "ok"], True),
        (
            ["48 INVALID_TXN_STATE", "not offered: END_TXN has 0 to 4"],
            ["ok", "ok, A epoch 1"],
            False,
        ),
        (["ok"], ["ok", "no answer"], False),
    ],
)
def test_responses_are_compared_where_both_support_the_request(
    one: list[str], other: list[str], alike: bool
) -> None:
    assert are_alike(one, other) is alike


@pytest.mark.parametrize(
    ("explained", "answers", "troubles"),
    [
        ({}, ("ok", "ok", "ok", "ok"), 0),
        ({}, ("ok", "ok", "48", "48"), 1),
        ({"since_4": "because"}, ("ok", "ok", "48", "48"), 0),
        ({"since_4": "because"}, ("ok", "ok", "ok", "ok"), 1),
        ({}, ("ok", "48", "ok", "ok"), 1),
        ({"ours": "because"}, ("ok", "ok", "ok", "48"), 0),
        ({"ours": "because"}, ("ok", "ok", "ok", "ok"), 1),
    ],
)
def test_a_difference_needs_a_reason_and_a_reason_a_difference(
    explained: dict[str, str], answers: tuple[str, str, str, str], troubles: int
) -> None:
    names = ("Apache Kafka 3.9.1", "kraftsim 3.9", "Apache Kafka 4.4.0", "kraftsim 4.4")
    asked = Probe(title="x", steps=(), **explained)
    responses = {name: {"x": [answer]} for name, answer in zip(names, answers, strict=True)}
    assert len(unexplained([("x", asked)], responses)) == troubles


def test_words_that_match_no_probe_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "nothing is called that"]) == 3
    assert "nothing is called that" in capsys.readouterr().err

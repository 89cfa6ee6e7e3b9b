"""What random schedules can draw, and what they exercised in the kept record: every kind of fault,
every API that is exchanged, every error that a server can answer.
"""

from collections import Counter
from collections.abc import Iterable

import pytest

from kraftsim.cluster.scenario import scenarios
from kraftsim.lab.faults.coverage import coverage_lines, labels_of
from kraftsim.lab.faults.fault import FAULTS, SIM, Fault, OnEvent
from kraftsim.lab.faults.kinds.request_faults import of_requests
from kraftsim.lab.faults.random_request_faults import apis_of
from kraftsim.lab.faults.rules_request_faults import api_name
from tools.docs.search_coverage_page import errors_of_spaces, never_effective, search_coverage_page
from tools.search_coverage import DRAWN_SEEDS, SearchCoverage, drawn_labels, read_record
from tools.search_exceptions import NEVER_ASKED, NEVER_DRAWN, NEVER_EFFECTIVE

SEARCHED = [each for each in scenarios() if each.fault_space is not None]


@pytest.fixture(scope="module")
def drawn() -> Counter[str]:
    """The labels of 200 schedules of each scenario with a fault space."""
    return drawn_labels(SEARCHED)


def test_every_kind_of_fault_is_drawn(drawn: Counter[str]) -> None:
    kinds = {label.split()[1] for label in drawn if label.startswith("fault ")}
    missing = {kind.name for kind in FAULTS.all() if SIM in kind.modes} - kinds
    assert sorted(missing) == sorted(NEVER_DRAWN), "give a reason for it, or a scenario that has it"


def test_every_api_of_a_fault_space_is_drawn(drawn: Counter[str]) -> None:
    found = {tuple(label.split()[1:3]) for label in drawn if label.startswith("request ")}
    declared = {
        (api_name(api.key), api.clients)
        for each in SEARCHED
        if each.fault_space is not None
        for api in apis_of(each.fault_space)
    }
    assert not declared - found


def test_every_error_that_a_space_allows_is_drawn(drawn: Counter[str]) -> None:
    """By its code and whether the work was done, of whatever API; and most of each API."""
    allowed = errors_of_spaces()
    codes = _codes(allowed)
    missing = codes - _codes(drawn)
    for each in SEARCHED if missing else ():  # one of a single API may need more seeds
        if missing & _codes(errors_of_spaces([each])):
            missing -= _codes(drawn_labels([each], seeds=5 * DRAWN_SEEDS))
    assert not missing
    assert sum(label in drawn for label in allowed) > 0.85 * len(allowed)


def _codes(labels: Iterable[str]) -> set[str]:
    return {label.split(" ", 3)[3] for label in labels if label.startswith("request ")}


def test_every_api_that_is_exchanged_is_declared_by_a_space_or_has_a_reason() -> None:
    """An API that a scenario's clients or nodes begin to use must get faults, too."""
    declared = {
        f"{api_name(api.key)} {api.clients}"
        for each in SEARCHED
        if each.fault_space is not None
        for api in apis_of(each.fault_space)
    }
    unknown = sorted(set(read_record().exchanged) - declared)
    assert unknown == sorted(NEVER_ASKED), "declare it in a fault space, or give a reason"


def test_everything_took_effect_in_the_kept_record_or_has_a_reason() -> None:
    assert sorted(never_effective(read_record())) == sorted(NEVER_EFFECTIVE)
    assert all(NEVER_EFFECTIVE.values()) and all(NEVER_ASKED.values())


def test_effect_that_is_missing_is_found() -> None:
    """Otherwise the test above could not fail."""
    record = SearchCoverage(
        command="",
        date="",
        commit="",
        scenarios={},
        not_clean=0,
        exercised={
            "fault kill on time": (3, 2, 1),
            "request EndTxn clients error=NOT_COORDINATOR done": (2, 1, 0),
            "request EndTxn clients drop=reply": (2, 1, 1),
            "request Vote controllers duplicate": (2, 1, 0),
        },
        exchanged={},
    )
    missing = never_effective(record)
    assert {"error=NOT_COORDINATOR done", "Vote of controllers", "pause"} <= set(missing)
    assert not {"kill", "EndTxn of clients"} & set(missing)


def test_labels_say_kind_trigger_and_what_becomes_of_requests() -> None:
    assert labels_of(Fault(kind="kill", trigger=OnEvent(kind="LeaderElected"))) == (
        "fault kill on event",
    )
    for text, label in (
        ("EndTxn error=NOT_COORDINATOR done", "EndTxn clients error=NOT_COORDINATOR done"),
        ("WriteTxnMarkers drop=reply sender=broker-*", "WriteTxnMarkers brokers drop=reply"),
        ("Vote duplicate sender=controller-101", "Vote controllers duplicate"),
        ("Fetch throttle throttle_ms=5", "Fetch clients throttle=reply"),
        ("* drop sender=any", "any any drop=request"),
    ):
        assert labels_of(of_requests(text)) == ("fault request-fault on time", f"request {label}")


def test_a_sweep_says_what_its_faults_exercised() -> None:
    lines = coverage_lines(
        {
            "fault kill on time": (3, 2, 1),
            "fault pause on time": (1, 1, 0),
            "request EndTxn clients error=NOT_COORDINATOR done": (2, 1, 1),
        }
    )
    assert lines == [
        "  triggers (drawn/fired/effective): time 4/3/1",
        "  requests (drawn/fired/effective): EndTxn of clients 2/1/1",
        "  errors (drawn/fired/effective): NOT_COORDINATOR done 2/1/1",
    ]


def test_page_shows_matrices_and_gaps() -> None:
    text = search_coverage_page()
    for heading in ("Kinds of faults by trigger", "Errors by API", "Never exercised"):
        assert f"## {heading}\n" in text
    assert text.count("Measured: `make search-coverage") == 3

"""The analysis of a run from its directory to its result and exit code."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from kraftsim.analysis import analyze, document
from kraftsim.analysis.analysis import SUMMARY_LINES_MAX, Analysis, RunFacts, read_run_facts
from kraftsim.analysis.analyze import analysis_of, analyze_run
from kraftsim.analysis.engines import Engine
from kraftsim.analysis.ingest import NoEvents
from kraftsim.invariants.invariant import INVARIANTS
from kraftsim.invariants.verdict import Outcome
from tests.analysis.event_factories import (
    acknowledged,
    allocated,
    final_log,
    final_record,
    received,
    returned,
    sent,
)
from tests.analysis.history import History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def clean(run: Path) -> History:
    history = History()
    history.emit("controller", allocated(0, 1000))
    history.emit("broker", received(0, 1000))
    history.emit("broker", returned(0))
    history.emit("broker", returned(1))
    return history


def described(run: Path, **facts: object) -> Path:
    (run / "run.json").write_text(
        json.dumps(
            {
                "scenario": "tale",
                "mode": "sim",
                "seed": 7,
                "command": "kraftsim scenario tale",
                **facts,
            }
        ),
        encoding="utf-8",
    )
    return run


def outcomes(analysis: Analysis) -> dict[str, str]:
    return {result.invariant: result.outcome.value for result in analysis.verdicts}


def test_a_clean_run_is_ok_and_lists_invariants_that_do_not_apply(tmp_path: Path) -> None:
    """Exit code 0; an invariant that is not required and examined nothing is not applicable."""
    clean(tmp_path).write(tmp_path)
    analysis = analyze_run(described(tmp_path, must_exercise=["producer-id-unique"]))
    assert (analysis.verdict, analysis.exit_code) == (Outcome.OK, 0)
    assert outcomes(analysis)["producer-id-unique"] == "ok"
    assert outcomes(analysis)["one-append-per-sequence"] == "not applicable"
    assert analysis.lines()[0] == "tale (sim, seed 7): ok"
    assert not any("replay" in line for line in analysis.lines())


def test_a_violated_run_names_its_evidence_events_and_the_replay_command(tmp_path: Path) -> None:
    """Exit code 1, the worst result first."""
    history = clean(tmp_path)
    history.emit("broker-2", returned(1))
    history.write(tmp_path)
    analysis = analyze_run(described(tmp_path))
    assert (analysis.verdict, analysis.exit_code) == (Outcome.VIOLATED, 1)
    (unique,) = [result for result in analysis.verdicts if result.invariant == "producer-id-unique"]
    (violation,) = unique.violations
    assert violation.witnesses == ("broker.1.2", "broker-2.1.0")
    events = analysis.evidence[violation]
    assert tuple(event.event_id for event in events) == violation.witnesses
    assert events[0].fields == {"producer_id": 1, "producer_epoch": 0, "fresh": True}
    text = "\n".join(analysis.lines())
    assert (
        "what broke: producer-id-unique (KIP-98, KIP-730)" in analysis.lines()[2]
        and "broker-2.1.0" in text
        and "replay: kraftsim scenario tale" in text
    )


def test_a_required_invariant_with_nothing_to_examine_is_vacuous(tmp_path: Path) -> None:
    """Exit code 2: the scenario declares the invariant as one that it exercises."""
    clean(tmp_path).write(tmp_path)
    analysis = analyze_run(described(tmp_path, must_exercise=["one-append-per-sequence"]))
    assert (analysis.verdict, analysis.exit_code) == (Outcome.VACUOUS, 2)


def test_lost_event_lines_turn_ok_into_unknown_but_not_violated(tmp_path: Path) -> None:
    """An incomplete history cannot prove that an invariant held."""
    history = clean(tmp_path)
    history.lose("broker")
    history.emit("broker", returned(1))
    history.emit("broker", received(5000, 6000))
    history.write(tmp_path)
    found = outcomes(analyze_run(tmp_path))
    assert (
        found["producer-id-unique"],
        found["producer-id-blocks-disjoint"],
        found["one-append-per-sequence"],
    ) == (
        "violated",
        "unknown",
        "not applicable",
    )


def test_acknowledgements_without_a_final_log_are_unknown(tmp_path: Path) -> None:
    """Exit code 2, with the reason."""
    history = clean(tmp_path)
    history.emit("client", acknowledged(0, "x"))
    history.write(tmp_path)
    analysis = analyze_run(tmp_path)
    assert (analysis.verdict, analysis.exit_code) == (Outcome.UNKNOWN, 2)
    assert any("was not read" in line for line in analysis.lines())


def test_one_invariant_can_be_selected(tmp_path: Path) -> None:
    """A misspelt name is an error that lists the known ones."""
    clean(tmp_path).write(tmp_path)
    assert list(outcomes(analyze_run(tmp_path, ("producer-id-unique",)))) == ["producer-id-unique"]
    with pytest.raises(KeyError, match="producer-id-unique"):
        analyze_run(tmp_path, ("producer-id-uniq",))
    with pytest.raises(KeyError, match=r"no invariant is called flying.*--extension"):
        analyze_run(described(tmp_path, must_exercise=["flying"]))


def test_a_directory_that_is_no_run_is_reported(tmp_path: Path) -> None:
    """The CLI command exits with 3; here it is an error of one line."""
    with pytest.raises(NoEvents):
        analyze_run(tmp_path)
    (tmp_path / "run.json").write_text('{"seed": "seven"}', encoding="utf-8")
    with pytest.raises(ValueError, match=r"run\.json is no description"):
        analyze_run(tmp_path)


def test_the_summary_has_at_most_forty_lines_and_escapes_names(tmp_path: Path) -> None:
    """Clients choose topics and keys; their control characters must not reach a terminal."""
    history = History()
    for number in range(50):
        history.emit("client", acknowledged(number, f"key\n\x1b[31m{number}", topic="t\r"))
    history.emit("final", final_log(0, 0, topic="t\r"))
    for number in [*range(10), *range(10)]:
        history.emit("broker", returned(number))
        history.emit("controller", allocated(0, 10))
    history.write(tmp_path)
    analysis = analyze_run(described(tmp_path, scenario="a\x1b[2Jb"))
    assert len(analysis.lines()) == SUMMARY_LINES_MAX
    assert all(line.isprintable() for line in analysis.lines())
    (lost,) = [result for result in analysis.verdicts if result.violation_count == 50]
    assert lost.violations[0].message.startswith("t\r-0: record key\n\x1b[31m0 was"), (
        "only the text is escaped, the data is unchanged"
    )


def test_the_result_is_cached_until_the_run_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the report of an analyzed run needs no Spark."""
    clean(tmp_path).write(tmp_path)
    analysis = analyze_run(described(tmp_path))
    monkeypatch.setattr(analyze, "analyze_run", lambda run, **_: None)
    assert analysis_of(tmp_path) == analysis
    (tmp_path / "events" / "late.1.jsonl").write_bytes(b"")
    assert analysis_of(tmp_path) is None
    assert msgspec.json.decode((tmp_path / "analysis.json").read_bytes())["verdict"] == "ok"


def test_a_kept_analysis_has_the_events_of_each_violation(tmp_path: Path) -> None:
    """Its fields keep their names, for the scripts that read them; read back, it is the same
    analysis.
    """
    history = clean(tmp_path)
    history.emit("broker-2", returned(1))
    history.write(tmp_path)
    analysis = analyze_run(described(tmp_path))
    content = (tmp_path / "analysis.json").read_bytes()
    assert document.decode(content) == analysis and analysis.evidence
    kept = json.loads(content)
    assert list(kept) == [
        "verdict",
        "facts",
        "ingest",
        "judgements",
        "transactions",
        "upgrade",
        "details",
    ]
    (unique,) = [each for each in kept["judgements"] if each["invariant"] == "producer-id-unique"]
    assert (unique["outcome"], unique["violation_count"]) == ("violated", 1)
    assert (unique["rule"], unique["source"]) == (
        INVARIANTS.named("producer-id-unique").rule,
        INVARIANTS.named("producer-id-unique").source,
    )
    (breach,) = unique["breaches"]
    assert list(breach) == ["key", "message", "witnesses"]
    assert [event["event_id"] for event in breach["witnesses"]] == ["broker.1.2", "broker-2.1.0"]


def test_an_analysis_of_an_earlier_release_can_be_read(tmp_path: Path) -> None:
    """Its file has no details."""
    clean(tmp_path).write(tmp_path)
    analysis = analyze_run(described(tmp_path))
    assert analysis.details is not None
    kept = json.loads((tmp_path / "analysis.json").read_bytes())
    del kept["details"]
    earlier = document.decode(json.dumps(kept).encode())
    assert earlier == msgspec.structs.replace(analysis, details=None)
    assert earlier.lines()[0] == "tale (sim, seed 7): ok"


def test_the_text_of_a_clean_run_has_one_sentence_and_folds_what_does_not_apply(
    tmp_path: Path,
) -> None:
    history = clean(tmp_path)
    history.emit("client", sent("a"))
    history.emit("client", acknowledged(0, "a"), after_ns=2_500_000_000)
    history.emit("final", final_log(1, 1))
    history.emit("final", final_record(0, "a"))
    history.write(tmp_path)
    lines = analyze_run(described(tmp_path)).lines()
    assert lines[1] == "  clients: 1 record acknowledged, 0 lost, 0 doubled, longest wait 2.5 s"
    (folded,) = [line for line in lines if "not applicable" in line]
    assert re.fullmatch(r"  not applicable  \d+ invariants: see --json, or the report", folded)


def test_the_text_of_a_violation_tells_witnesses_and_the_next_commands(tmp_path: Path) -> None:
    history = clean(tmp_path)
    history.emit("broker-2", returned(1))
    history.write(tmp_path)
    replay = {"mode": "sim", "bugs": ["B"], "faults": [{"kind": "kill", "target": "b\x1b"}]}
    (tmp_path / "replay.json").write_text(json.dumps(replay), encoding="utf-8")
    text = analyze_run(described(tmp_path)).lines()
    assert (
        "    1. 0.000004 s  broker returned producer id 1, epoch 0, a new id  [broker.1.2]" in text
    )
    assert (
        "    2. 0.000005 s  broker-2 returned producer id 1, epoch 0, a new id  [broker-2.1.0]"
        in text
    )
    assert f"  next: kraftsim shrink {tmp_path} --out {tmp_path}-small" in text
    assert f"  next: kraftsim replay {tmp_path} --without-bugs --out {tmp_path}-sound" in text
    assert all(line.isprintable() for line in text)


def test_a_run_directory_without_a_description_is_accepted(tmp_path: Path) -> None:
    """`kraftsim up` writes none."""
    assert read_run_facts(tmp_path) == RunFacts()
    assert RunFacts().title == "a run"


@pytest.mark.spark
def test_analyze_gives_the_same_result_with_spark_and_duckdb(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """End to end, once, with the engine that users have."""
    history = clean(tmp_path)
    history.emit("broker-2", returned(1))
    history.write(tmp_path)
    found = analyze_run(described(tmp_path), spark=spark)
    assert found == analyze_run(tmp_path, engine=Engine.DUCKDB)
    assert found.verdict == "violated" and len(found.verdicts) == len(INVARIANTS.names())

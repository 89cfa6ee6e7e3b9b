"""One cluster of the audit corpus: Apache Kafka with a hanging transaction, before and after an
operator aborts it. `make audit-corpus` makes and audits all of them.
"""

from pathlib import Path

import pytest

from tests.apache_kafka.class_path import class_path
from tools.audit_corpus.judged import judged
from tools.audit_corpus.runs import RUNS, workspace
from tools.audit_corpus.situations import (
    Expected,
    Recorder,
    Stopped,
    cut_power,
    read_situation,
    segments,
    situations,
)

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    class_path()
    (run,) = [each for each in RUNS if each.name == "hanging-3.9.1-kraft"]
    out = tmp_path_factory.mktemp("corpus")
    with workspace() as place:
        run.act(place, Recorder(out, run.name, run.release, run.mode))
    return out


def test_each_situation_is_audited_as_expected(corpus: Path) -> None:
    """The open transaction is the only defect, with and without a clean stop; then it is gone."""
    found = [judged(place, situation) for place, situation in situations(corpus)]
    assert [(each.situation.expected, each.situation.stopped, each.wrong) for each in found] == [
        (Expected.HANGING, Stopped.RUNNING, ()),
        (Expected.HANGING, Stopped.CLEANLY, ()),
        (Expected.SOUND, Stopped.CLEANLY, ()),
    ]


def test_a_power_cut_shortens_only_what_was_not_committed(corpus: Path, tmp_path: Path) -> None:
    """A copy of a running broker loses bytes, and the audit reports no defect because of it."""
    place = next(place for place, each in situations(corpus) if each.stopped == Stopped.RUNNING)
    recorder = Recorder(tmp_path, "cut", "3.9.1", "kraft")
    copy = recorder.power_cut(place, "power-cut", "half of what was not flushed is gone")
    sizes = [sum(file.stat().st_size for file in segments(each)) for each in (place, copy)]
    assert sizes[1] < sizes[0]
    situation = read_situation(copy)
    assert situation.stopped == Stopped.POWER_CUT
    assert [each for each in judged(copy, situation).wrong if "hanging" not in each] == []
    cut_power(copy / situation.log_dirs[0])
    assert sum(file.stat().st_size for file in segments(copy)) <= sizes[1]

"""The combined batches of a share-partition equal those of Apache Kafka's
PersisterStateBatchCombiner.
"""

import random
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kraftsim.share_groups.rules_share_batches import combine_in_one_sweep, combine_in_pairs
from kraftsim.share_groups.rules_share_states import StateBatch
from tests.apache_kafka.class_path import NEWEST_RELEASE, class_path, java

pytestmark = pytest.mark.interop
QUESTION_COUNT = 6000
ANSWER_SECONDS = 120
FORMERLY = "4.3.1"
"""The last release with the former combiner."""
NOTHING = "-"


def questions() -> list[str]:
    """Return start offsets and batches that overlap, touch and repeat each other."""
    draw = random.Random(17)
    asked = []
    for _ in range(QUESTION_COUNT):
        end = draw.choice((6, 15, 40))
        start = draw.choice((-1, -1, 0, draw.randint(0, end)))
        sides = [
            ",".join(
                "-".join(map(str, batch_numbers(draw, end))) for _ in range(draw.randint(0, 6))
            )
            for _ in range(2)
        ]
        asked.append(" ".join([str(start), *(side or NOTHING for side in sides)]))
    return asked


def batch_numbers(draw: random.Random, end: int) -> tuple[int, int, int, int]:
    first = draw.randint(0, end)
    last = min(end, first + draw.choice((0, 1, 3, 10)))
    return first, last, draw.choice((0, 2, 4)), draw.choice((1, 1, 2, 5))


def parsed(word: str) -> list[StateBatch]:
    if word == NOTHING:
        return []
    return [StateBatch(*map(int, batch.split("-"))) for batch in word.split(",")]


def ours(
    combine: Callable[[Sequence[StateBatch], Sequence[StateBatch], int], tuple[StateBatch, ...]],
    question: str,
) -> str:
    """Return the batches of kraftsim."""
    start, *sides = question.split()
    former, added = map(parsed, sides)
    combined = combine(former, added, int(start))
    return (
        ",".join(
            f"{each.first_offset}-{each.last_offset}-{each.delivery_state}-{each.delivery_count}"
            for each in combined
        )
        or NOTHING
    )


@pytest.mark.parametrize(
    ("release", "combine"), [(FORMERLY, combine_in_pairs), (NEWEST_RELEASE, combine_in_one_sweep)]
)
def test_batches_are_combined_as_apache_kafka_does(
    release: str,
    combine: Callable[[Sequence[StateBatch], Sequence[StateBatch], int], tuple[StateBatch, ...]],
) -> None:
    """By delivery count, then by delivery state (KIP-932)."""
    jars = ":".join(map(str, class_path(release)))
    asked = questions()
    answer = subprocess.run(
        [str(java()), "-cp", jars, str(Path(__file__).parent / "ShareBatches.java")],
        input="\n".join(asked),
        capture_output=True,
        text=True,
        check=False,
        timeout=ANSWER_SECONDS,
    )
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert len(lines) == len(asked)
    different = [
        (question, there, ours(combine, question))
        for question, there in zip(asked, lines, strict=True)
        if there != ours(combine, question)
    ]
    assert not different, f"{len(different)} of {len(asked)}, the first of them: {different[:3]}"

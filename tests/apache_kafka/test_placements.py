"""Replica placement equals that of Apache Kafka's StripedReplicaPlacer, given the same random
numbers and clusters.
"""

import random
import subprocess
from pathlib import Path

import pytest

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_registrations import BrokerRegistration
from kraftsim.metadata.rules_topic_table import place_replicas
from tests.apache_kafka.class_path import class_path, java

pytestmark = pytest.mark.interop
QUESTION_COUNT = 4000
MASK = (1 << 48) - 1
ANSWER_SECONDS = 120


class JavaRandom:
    """java.util.Random, as its documentation defines it."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ 0x5DEECE66D) & MASK

    def randbytes(self, size_bytes: int) -> bytes:
        """Fail: a placement uses numbers only."""
        raise AssertionError(f"a placement asked for {size_bytes} bytes")

    def randrange(self, stop: int) -> int:
        """Return nextInt(stop)."""
        if stop & (stop - 1) == 0:
            return (stop * self._next()) >> 31
        while True:
            drawn = self._next()
            if drawn - drawn % stop + stop - 1 < 1 << 31:
                return drawn % stop

    def _next(self) -> int:
        self._state = (self._state * 0x5DEECE66D + 0xB) & MASK
        return self._state >> 17


def questions() -> list[str]:
    """Return clusters of up to twelve brokers in up to four racks, some of them fenced."""
    draw = random.Random(11)
    asked = []
    for seed in range(QUESTION_COUNT):
        racks = draw.choice(("-", "a", "ab", "abc", "-ab", "abcd"))
        count = draw.randint(1, 12)
        fenced_share = draw.choice((0, 0, 0.2, 0.5, 1))
        drawn = [draw.choice(racks) for _ in range(count)]
        words = [
            "_"
            if rack == "-" and draw.random() < fenced_share
            else rack.upper()
            if draw.random() < fenced_share
            else rack
            for rack in drawn
        ]
        asked.append(
            f"{seed} {draw.randint(1, 40)} {draw.randint(1, min(count + 1, 6))} {','.join(words)}"
        )
    return asked


def ours(question: str) -> str:
    """Return the placement of kraftsim."""
    seed, partitions, factor, racks = question.split(" ")
    brokers = [
        BrokerRegistration(
            broker_id=number,
            broker_epoch=0,
            incarnation_id=bytes(16),
            listeners=(),
            features=(),
            rack=None if rack in "-_" else rack.lower(),
            fenced=rack == "_" or rack.isupper(),
            in_controlled_shutdown=False,
            directories=(),
        )
        for number, rack in enumerate(racks.split(","))
    ]
    placed = place_replicas(int(partitions), int(factor), brokers, JavaRandom(int(seed)))
    return (
        placed.why
        if isinstance(placed, Refusal)
        else " ".join(",".join(map(str, replicas)) for replicas in placed)
    )


def test_replicas_go_where_apache_kafka_puts_them() -> None:
    """Round-robin over racks and brokers, shuffled after each round."""
    program, jars = java(), ":".join(map(str, class_path()))
    asked = questions()
    command = [str(program), "-cp", jars, str(Path(__file__).parent / "Placements.java")]
    answer = subprocess.run(
        command,
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
        (question, there, ours(question))
        for question, there in zip(asked, lines, strict=True)
        if there != ours(question)
    ]
    assert not different, f"{len(different)} of {len(asked)}, the first of them: {different[:3]}"

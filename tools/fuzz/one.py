"""Fuzzes one target in its own process for a given time: with atheris, which is guided by coverage,
or with random mutation.

    python -m tools.fuzz.one NAME SECONDS CORPUS [--by-chance]

Exit code 1: the property was broken, the inputs were printed.
"""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tools.fuzz.guard import Guard

INPUT_BYTES_MAX = 8192
RESIDENT_MIB_MAX = 3072
SECONDS_PER_INPUT_MAX = 20
SECONDS_PER_LINE = 5.0
WORD_BYTES_MAX = 60
KEPT_INPUTS_MAX = 2000
"""The limit for inputs kept from earlier runs: they run first, and should not take all the time."""
INPUTS_PER_LOOK_AT_THE_CLOCK = 64


class Run:
    """The clock, the progress line, and the end of a fuzz run."""

    def __init__(self, name: str, seconds: float, guard: "Guard") -> None:
        self._name = name
        self._seconds = seconds
        self._guard = guard
        self._calls = 0
        self.start()

    def start(self) -> None:
        """Start the clock. Seeds run before, which compiles every codec."""
        self._started = self._said = time.monotonic()
        self._before = self._guard.inputs

    def one(self, data: bytes, *, ends: bool = True) -> None:
        """Run an input; exit the process if the time is over."""
        finding = self._guard.run(data, timed=ends)
        if finding is not None:
            print(f"\n{self._name}: BROKEN by {len(data)} bytes\n{finding}\n", flush=True)
        self._calls += 1
        if ends and self._calls % INPUTS_PER_LOOK_AT_THE_CLOCK == 0:
            self._look_at_the_clock()

    def _look_at_the_clock(self) -> None:
        now = time.monotonic()
        if now - self._said >= SECONDS_PER_LINE:
            self._said = now
            self.say(now)
        if now - self._started >= self._seconds:
            self.say(now)
            sys.stdout.flush()
            os._exit(1 if self._guard.findings else 0)

    def say(self, now: float) -> None:
        """Print the progress line."""
        guard, seconds = self._guard, now - self._started
        rate = (guard.inputs - self._before) / max(seconds, 0.001)
        print(
            f"{self._name}: {seconds:3.0f} of {self._seconds:.0f} s, {guard.inputs} inputs "
            f"({rate:.0f} a second), {guard.read} read, {guard.refused} refused, "
            f"{len(guard.findings)} broken",
            flush=True,
        )


def main() -> None:
    """Run until the time is over."""
    name, seconds, corpus = sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])
    atheris = None if "--by-chance" in sys.argv[4:] else _atheris()
    with _instrumented(atheris):
        from tools.fuzz.guard import Guard
        from tools.fuzz.targets import REFUSALS, TARGETS
    target = TARGETS[name]
    guard = Guard(name, target.check, REFUSALS)
    seeds = list(target.seeds())
    run = Run(name, seconds, guard)
    for seed in seeds:
        run.one(seed, ends=False)
    print(f"{name}: {target.what}; {len(seeds)} seeds, {guard.refused} of them refused", flush=True)
    run.start()
    if atheris is None:
        _at_random(run, name, seeds, corpus)
    else:
        _by_coverage(atheris, run, seeds, corpus, seconds)


def _by_coverage(atheris: Any, run: Run, seeds: list[bytes], corpus: Path, seconds: float) -> None:
    from tools.fuzz.mutation import EXTREMES

    begin = corpus / "seeds"
    begin.mkdir(parents=True, exist_ok=True)
    (corpus / "found").mkdir(exist_ok=True)
    for large in sorted(
        (corpus / "found").iterdir(), key=lambda file: (file.stat().st_size, file.name)
    )[KEPT_INPUTS_MAX:]:
        large.unlink()
    for number, seed in enumerate(seeds):
        (begin / f"{number:06}").write_bytes(seed)
    words = (word.hex(" ").replace(" ", r"\x") for word in EXTREMES if len(word) < WORD_BYTES_MAX)
    (corpus / "words").write_text("".join(rf'"\x{word}"' + "\n" for word in words))
    options = [
        f"-dict={corpus / 'words'}",
        f"-max_len={INPUT_BYTES_MAX}",
        f"-timeout={SECONDS_PER_INPUT_MAX}",
        f"-rss_limit_mb={RESIDENT_MIB_MAX}",
        f"-max_total_time={int(seconds) + 30}",
        f"-artifact_prefix={corpus}/",
        "-verbosity=0",
        "-print_final_stats=0",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus / "found"), str(begin)], run.one)
    atheris.Fuzz()


def _at_random(run: Run, name: str, seeds: list[bytes], corpus: Path) -> None:
    import resource

    from tools.fuzz.mutation import mutated

    resource.setrlimit(resource.RLIMIT_AS, (RESIDENT_MIB_MAX << 20, RESIDENT_MIB_MAX << 20))
    rng = Random(f"{name} {os.environ.get('FUZZ_SEED', '')}")
    last = corpus / "last"
    corpus.mkdir(parents=True, exist_ok=True)
    while True:
        data = mutated(rng, rng.choice(seeds), seeds)
        if len(data) > INPUT_BYTES_MAX // 2:
            last.write_bytes(data)
        run.one(data)


def _atheris() -> Any:
    import atheris

    return atheris


@contextlib.contextmanager
def _instrumented(atheris: Any) -> Iterator[None]:
    """Instrument for atheris what targets call: modules at import, generated functions when they
    are made.
    """
    if atheris is None:
        yield
        return
    with atheris.instrument_imports(include=["protocol", "kraftsim.partitions.rules_append"]):
        from protocol.codec.message_codec import CompiledMessage
        from tools.drift.comparison import declared_messages

        declared_messages()
        plain = CompiledMessage._generated

        def generate_instrumented(
            self: CompiledMessage[Any], title: str, function: str, **scope: object
        ) -> Any:
            made = plain(self, title, function, **scope)
            return None if made is None else atheris.instrument_func(made)

        # method-assign: the fuzzer instruments what the codec generates
        CompiledMessage._generated = generate_instrumented  # type: ignore[method-assign]
        yield


if __name__ == "__main__":
    main()

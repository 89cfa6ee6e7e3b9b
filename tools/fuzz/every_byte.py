"""Exhaustive byte mutation: each byte of samples of each message and version is changed to each of
the 255 other values.

Two samples each: a short one with one of each field, with every 32nd change also checked by the
reference codec, and a longer random one.

    python -m tools.fuzz.every_byte [SHARE/SHARES]
"""

import sys
import time
from collections.abc import Iterator, Sequence

from protocol.codec.message_codec import compiled
from tests.wire.hostile_bytes import check_outcome, short_frame
from tools.fuzz.guard import Guard
from tools.fuzz.message_targets import all_messages, check_message, examples
from tools.fuzz.targets import REFUSALS

NAME = "every-byte"
SECONDS_PER_LINE = 5.0
COMPARED_EVERY = 32
RANDOM_BYTES_MAX = 80


class Check:
    """Reads changed samples of one message at one version."""

    def __init__(self, cls: type, version: int, compared_every: int) -> None:
        self._cls = cls
        self._version = version
        self._compared_every = compared_every
        self._calls = 0

    def __call__(self, data: bytes) -> None:
        self._calls += 1
        if self._compared_every and self._calls % self._compared_every == 0:
            check_message(self._cls, self._version, data)
        else:
            check_outcome(self._cls, self._version, data)


def changed(sample: bytes) -> Iterator[bytes]:
    """Yield the sample with each byte changed to each other value."""
    data = bytearray(sample)
    for position, kept in enumerate(sample):
        for value in range(256):
            if value != kept:
                data[position] = value
                yield bytes(data)
        data[position] = kept


def main(arguments: Sequence[str]) -> int:
    """Run a share of all messages (`0/2`: every second, starting with the first) and return 1 if
    one broke the property.
    """
    share, shares = map(int, (arguments[0] if arguments else "0/1").split("/"))
    pairs = all_messages()[share::shares]
    started = said = time.monotonic()
    inputs = findings = 0
    for number, (cls, version) in enumerate(pairs, 1):
        samples = (
            compiled(cls, version).encode(next(examples(cls, version))),
            short_frame(cls, version, RANDOM_BYTES_MAX),
        )
        for sample, compared_every in zip(samples, (COMPARED_EVERY, 0), strict=True):
            guard = Guard(NAME, Check(cls, version, compared_every), REFUSALS)
            for data in changed(sample):
                finding = guard.run(data)
                if finding is not None:
                    print(
                        f"\n{cls.__name__} v{version}: BROKEN by {data.hex()}\n{finding.what}",
                        flush=True,
                    )
            inputs += guard.inputs
            findings += len(guard.findings)
        now = time.monotonic()
        if now - said >= SECONDS_PER_LINE or number == len(pairs):
            said = now
            of_all = f"{number} of {len(pairs)} messages and versions"
            print(
                f"{NAME} {share + 1}/{shares}: {of_all}, {inputs} inputs, {now - started:.0f} s, "
                f"{findings} broken",
                flush=True,
            )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

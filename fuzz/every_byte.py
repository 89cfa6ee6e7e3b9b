"""Every value of every byte: a sample of each message at each version is changed in each of its bytes to each of the 255 other values.

All changes go through the fused codec, which asks the reference about what it refuses; of those that it reads, the reference sees every sixteenth.

    python -m fuzz.every_byte [SHARE/SHARES]
"""

import sys
import time
from collections.abc import Iterator, Sequence

from fuzz.guard import Guard
from fuzz.message_targets import all_messages, check_message, examples
from fuzz.targets import REFUSALS
from protocol.malformed import MalformedMessage
from protocol.message_codec import DISAGREEMENT, CompiledMessage, compiled

NAME = "every-byte"
SECONDS_PER_LINE = 5.0
COMPARED_EVERY = 16


class Check:
    """Reads changed samples of one message at one version."""

    def __init__(self, cls: type, version: int) -> None:
        self._cls = cls
        self._version = version
        self._codec: CompiledMessage = compiled(cls, version)
        self._calls = 0

    def __call__(self, data: bytes) -> None:
        self._calls += 1
        if self._calls % COMPARED_EVERY == 0:
            check_message(self._cls, self._version, data)
            return
        try:
            message, position = self._codec.decode(data, 0)
        except MalformedMessage as malformed:
            assert DISAGREEMENT not in malformed.reason, malformed
            raise
        assert 0 <= position <= len(data), f"read until {position} of {len(data)} bytes"
        self._codec.encode(message)


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
    """Run a share of all messages (`0/2`: every second, from the first on) and return 1 if one broke the property."""
    share, shares = map(int, (arguments[0] if arguments else "0/1").split("/"))
    pairs = all_messages()[share::shares]
    started = said = time.monotonic()
    inputs = findings = 0
    for number, (cls, version) in enumerate(pairs, 1):
        guard = Guard(NAME, Check(cls, version), REFUSALS)
        for data in changed(compiled(cls, version).encode(next(examples(cls, version)))):
            finding = guard.run(data)
            if finding is not None:
                print(f"\n{cls.__name__} v{version}: BROKEN by {data.hex()}\n{finding.what}", flush=True)
        inputs += guard.inputs
        findings += len(guard.findings)
        now = time.monotonic()
        if now - said >= SECONDS_PER_LINE or number == len(pairs):
            said = now
            of_all = f"{number} of {len(pairs)} messages and versions"
            print(f"{NAME} {share + 1}/{shares}: {of_all}, {inputs} inputs, {now - started:.0f} s, {findings} broken", flush=True)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

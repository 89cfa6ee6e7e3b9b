"""A file of JSON lines in which a campaign writes down every seed that is done, so that a campaign that was ended can go on."""

from pathlib import Path
from typing import IO

import msgspec

from kraftsim.campaign.errand import Done, Terms


class Journal:
    """The seeds that are done, all under the same terms. Use as a context manager; a torn last line, as a killed campaign leaves it, is cut."""

    def __init__(self, path: Path, terms: Terms) -> None:
        """Open the file or begin it. Raises ValueError for a journal of another campaign, or for a file that is none; OSError if it cannot be."""
        self._path = path
        self.done: dict[tuple[str, int], Done] = {}
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        lines = whole.splitlines()
        try:
            if lines and msgspec.json.decode(lines[0], type=Terms) != terms:
                raise ValueError(f"{path} is the journal of a campaign with another release, other bugs, other settings or other work")
            for line in lines[1:]:
                done = msgspec.json.decode(line, type=Done)
                self.done[done.key] = done
        except msgspec.DecodeError as trouble:
            raise ValueError(f"{path} is no journal of a campaign: {trouble}") from trouble
        path.write_bytes(whole or msgspec.json.encode(terms) + b"\n")
        self._file: IO[bytes] = path.open("ab")

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *trouble: object) -> None:
        self._file.close()

    def add(self, done: Done) -> None:
        """Write down a seed that is done."""
        self._file.write(msgspec.json.encode(done) + b"\n")
        self._file.flush()

"""A file of JSON lines with every finished seed of a campaign, so that an interrupted campaign can be resumed."""

from pathlib import Path
from typing import IO

import msgspec

from kraftsim.campaign.campaign_job import Done, Terms


class Journal:
    """The finished seeds, all with the same parameters. Use as a context manager; a torn last line of a killed campaign is truncated."""

    def __init__(self, path: Path, terms: Terms) -> None:
        """Open or create the file. Raises ValueError for a journal of another campaign, or for any other file; OSError if that fails."""
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
        except msgspec.DecodeError as error:
            raise ValueError(f"{path} is not a journal of a campaign: {error}") from error
        path.write_bytes(whole or msgspec.json.encode(terms) + b"\n")
        self._file: IO[bytes] = path.open("ab")

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, done: Done) -> None:
        """Append a finished seed."""
        self._file.write(msgspec.json.encode(done) + b"\n")
        self._file.flush()

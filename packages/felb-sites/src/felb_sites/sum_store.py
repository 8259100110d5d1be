"""The sums of a run's rounds at the coordinator, as they are sent to sites that replay the algorithm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.federated.journal import digest, read_entry, write_entry
from felb.federated.protocol import Sums

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from felb.federated.protocol import Request

SUFFIX = ".sums"
_ADVICE = "delete it; sites that need it are left out until the run ends"


class SumStore:
    """One file for each round that a site may still need.

    What is here is what sites were told, so a round that has to be asked again after a crash has these sums and no
    others.

    Parameters
    ----------
    folder : of the run
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def keep(self, request: Request, sums: Sums) -> None:
        """Keep the sums of a round."""
        self.folder.mkdir(parents=True, exist_ok=True)
        header = {"round": request.round, "digest": digest(request), "clients": sums.clients}
        write_entry(self._path(request.round), {**header, "missing": list(sums.missing)}, dict(sums))

    def find(self, request: Request) -> Sums | None:
        """Return the sums of this very request, if it was answered before."""
        found = self._read(request.round)
        if found is None or found[0]["digest"] != digest(request):
            return None
        header, values = found
        return Sums(values, int(header["clients"]), missing=header["missing"], number=request.round)

    def between(self, first: int, end: int) -> list[Sums]:
        """Return the sums of rounds from `first` to before `end`; from the last gap on if some are missing."""
        parts: list[Sums] = []
        for number in range(max(first, 0), end):
            found = self._read(number)
            if found is None:
                parts = []
                continue
            parts.append(Sums(found[1], int(found[0]["clients"]), number=number))
        return parts

    def forget(self, number: int) -> None:
        """Let a round be asked again."""
        self._path(number).unlink(missing_ok=True)

    def prune(self, below: int) -> None:
        """Delete the sums that no site needs any more."""
        for path in self.folder.glob(f"*{SUFFIX}"):
            if int(path.stem) < below:
                path.unlink(missing_ok=True)

    def _read(self, number: int) -> tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]] | None:
        path = self._path(number)
        if not path.is_file():
            return None
        try:
            return read_entry(path, advice=_ADVICE)
        except InputError:
            path.unlink(missing_ok=True)
            return None

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:07}{SUFFIX}"

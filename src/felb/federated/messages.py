"""What travels between the server and its clients: named arrays and a word for the task, nothing that runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from felb.errors import FederationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from felb.privacy.bounds import RecordSum

    Values = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Broadcast:
    """From the server to the clients.

    Parameters
    ----------
    task : a word the client already knows
    round : counts the broadcasts of a run from 0; a client answers each round at most once
    values : public arrays and scalars the task needs
    everyone : the task is for all clients, also when rounds are played by a sample of them
    """

    task: str
    round: int
    values: Values
    everyone: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """What a client's step wants to tell: named arrays that mean something as a sum over clients.

    It stays at the client until the gate has made a `Release` of it.

    Parameters
    ----------
    values : the arrays by name
    sums : which of them are sums over records with a bounded part of each, as noise needs to know
    """

    values: Values
    sums: Mapping[str, RecordSum] = field(default_factory=dict)

    @classmethod
    def of_records(cls, **sums: RecordSum) -> Update:
        """Tell sums over records, and nothing else."""
        return cls({name: part.values for name, part in sums.items()}, sums)


@dataclass(frozen=True, slots=True)
class Release:
    """An update that has passed the gate; the only thing the server accepts, and only the gate makes one."""

    values: Values


@dataclass(slots=True)
class Total:
    """The sum of releases and how many there were; all that the server ever learns of a round.

    Floats are added in float64 and integers in int64, so that the order of clients does not show in float32 results.
    """

    values: dict[str, NDArray[Any]] = field(default_factory=dict)
    n_clients: int = 0

    def add(self, release: Release) -> None:
        """Add one client's release; all must name the same arrays in the same shapes."""
        if self.n_clients == 0:
            self.values = {name: _wide(value) for name, value in release.values.items()}
        else:
            if release.values.keys() != self.values.keys():
                raise FederationError(
                    f"a client sent {sorted(release.values)} where the others sent {sorted(self.values)}"
                )
            for name, value in release.values.items():
                if np.shape(value) != self.values[name].shape:
                    raise FederationError(
                        f"a client sent {name} of shape {np.shape(value)} where the others sent "
                        f"{self.values[name].shape}"
                    )
                self.values[name] += value
        self.n_clients += 1

    @classmethod
    def of(cls, releases: Iterable[Release]) -> Total:
        """Add up several releases."""
        total = cls()
        for release in releases:
            total.add(release)
        return total


def _wide(value: NDArray[Any]) -> NDArray[Any]:
    array = np.asarray(value)
    return array.astype(np.float64 if array.dtype.kind == "f" else np.int64)

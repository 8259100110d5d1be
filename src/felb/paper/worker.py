"""The process that measures cells of experiments, see `felb.runs.cell_server`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from felb.runs.cell_server import answered, serve


def measured(request: dict[str, Any]) -> dict[str, Any]:
    """Return the figures, curves and pictures of the cell of a request."""
    from felb.paper.experiment_cells import cell_of
    from felb.paper.measuring import measure

    folders = {name: Path(path) for name in ("cache", "folder") if (path := request.get(name)) is not None}
    return asdict(measure(cell_of(request["parameters"]), **folders))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Measure the cell of a request; an error becomes an answer too."""
    return answered(measured, request)


def main() -> None:
    """Answer requests until there are no more."""
    from felb.paper.measuring import warm_up

    serve(measured, warm_up=lambda request: warm_up(request["parameters"]["method"]))


if __name__ == "__main__":
    main()

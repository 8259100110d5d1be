"""Components of 101 animals, found by ten clients: the table, what the components explain, and who has them.

python examples/zoo.py --picture docs/images/zoo.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import felb
from felb.data.files import row_names
from felb.report import draw_matrices, tile_order


def main(arguments: list[str] | None = None) -> None:
    """Print the components and draw the animals by them."""
    parser = argparse.ArgumentParser(description="Components of 101 animals, found by ten clients.")
    parser.add_argument("--picture", type=Path, default=Path("zoo.png"), help="file to draw to")
    parser.add_argument("--quick", action="store_true", help="less effort")
    options = parser.parse_args(arguments)

    zoo, names = felb.data.load("zoo"), row_names("zoo")
    clients = felb.data.partition.even(len(zoo), 10, seed=0)
    model = felb.FederatedBMF(6, effort="fast" if options.quick else "default", random_state=0)
    U = model.fit_transform(zoo, groups=clients)
    for features, members in zip(model.component_features(), U.T, strict=True):
        print(f"{', '.join(features)}: {members.sum()} animals, such as {names[members.argmax()]}")

    order = tile_order(U, model.components_)
    panels = {
        "101 animals\n17 properties": order.of(zoo),
        f"explained by six components\n{model.counts_.errors} of {model.counts_.cells:,} cells wrong": order.of(
            model.inverse_transform(U)
        ),
        "the components\none in each row": list(model.components_[:, None, order.columns]),
    }
    draw_matrices(panels, options.picture)


if __name__ == "__main__":
    main()

"""What a coordinator that lies freely reads of single records, beyond guessing from the marginals.

Three sites of 200 records and 40 features. A victim is a record with known codes that no other record has together:
four of them, or a single one for sketches. The attacks are those of packages/felb/tests/adversary. Each is played
without rules and under the strict ones, with costs of 5 and m + 1 for a covered zero, with masked sums and in the
clear, and the largest figure is told.

    python benchmarks/adversary.py                  200 victims, all attacks
    python benchmarks/adversary.py --victims 20     a quick look; the page is not written

Writes ADVERSARY.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from common import exit_if_missed, listed, make_parser, write_page

from felb.privacy.disclosure import PRESETS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "packages" / "felb" / "tests" / "adversary"))

from attacks import ATTACKS, NOT_STOPPED, choose_victims, make_sites, play  # noqa: E402

VICTIMS, MOST = 200, 0.02
RULES = {"none": None, "strict": PRESETS["strict"]}


def main() -> None:
    """Play all attacks and write the page."""
    parser = make_parser(__doc__)
    parser.add_argument("--victims", type=int, default=VICTIMS)
    options = parser.parse_args()
    sites, rows, missed = make_sites(), [], []
    for name in ATTACKS:
        victims = choose_victims(sites, 1 if name.startswith("sketches") else 4, options.victims)
        cells = []
        for word, rules in RULES.items():
            scores = [
                play(name, rules, sites=sites, victims=victims, cost=cost, masked=masked)
                for cost, masked in ((5, True), (sites[0].shape[1] + 1, True), (sites[0].shape[1] + 1, False))
            ]
            worst = max(scores, key=lambda score: score.upper)
            cells.append(f"{worst.advantage:.3f} ({worst.upper:.3f})")
            if word == "strict" and name not in NOT_STOPPED and worst.upper > MOST:
                missed.append(f"{name}: {worst.upper:.3f}")
        rows.append(f"| {name} | {len(victims)} | {' | '.join(cells)} | {'no' if name in NOT_STOPPED else 'yes'} |")
        print(rows[-1], flush=True)
    text = [
        "# What a lying coordinator reads",
        "",
        "Accuracy of the cells of a victim above guessing from the marginals, and in brackets the upper end of its 95%",
        "confidence interval; the largest of three: a cost of 5 and of m + 1 for a covered zero, masked, and m + 1 in",
        "the clear. Under `strict` (numbers of at least 10 records) an attack that a rule should stop must stay below",
        f"{MOST}. An attack that no rule stops tells more where there are more groups that differ in one record.",
        "Made by `python benchmarks/adversary.py`.",
        "",
        f"| attack | victims | {' | '.join(RULES)} | stopped by a rule |",
        "|---|---|---|---|---|",
        *rows,
        "",
        *listed(load=False),
    ]
    if options.victims == VICTIMS:
        write_page(HERE / "ADVERSARY.md", "\n".join(text))
    exit_if_missed(missed)


if __name__ == "__main__":
    main()

"""What secure aggregation costs: processor seconds of a site and of the server in one round.

Each site masks 20 x 62423 whole numbers, V of the widest data set in the paper. Two sites of ten are lost after they
have sent shares, so that the server opens their keys and takes eight masks for each of them off the sum. Seconds are
those of a processor in one thread; the second round is measured, whose keys and shares have travelled with the first.

    python benchmarks/secure_sum.py              3, 10, 20 and 50 sites
    python benchmarks/secure_sum.py --sites 30   other numbers of sites; writes nothing

Prints a Markdown table and writes it to SECURE_SUM.md; ends with an error beyond the bars or if a sum is not exact.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from common import listed, make_parser, write_page

from felb.secure_sum.protocol import Roster, Terms, member_of, new_signing_key, signer
from felb.secure_sum.server import SecureServer
from felb.secure_sum.site import SecureSite, SiteState

OUT = Path(__file__).with_name("SECURE_SUM.md")
SIZE, REQUEST = 20 * 62_423, "0" * 64
SITES = (3, 10, 20, 50)
LOST = {10: 2}
BARS = {10: (0.25, 0.7)}
"""Seconds of a site, and of the server."""


class Round:
    """Sites and a server in one process, timed."""

    def __init__(self, n: int) -> None:
        keys = {f"site-{i:02}": new_signing_key() for i in range(n)}
        self.roster = Roster(tuple(member_of(name, key) for name, key in keys.items()))
        terms = Terms("benchmark", "", self.roster.digest, self.roster.most_dropouts)
        self.sites = {name: SecureSite(name, self.roster, terms, signer(key)) for name, key in keys.items()}
        self.states = dict.fromkeys(keys, SiteState())
        self.server = SecureServer(self.roster, terms)
        rng = np.random.default_rng(0)
        pool = [rng.integers(-(10**9), 10**9, SIZE) for _ in range(3)]
        self.inputs = {name: pool[i % 3] for i, name in enumerate(keys)}
        self.seconds = {"site": 0.0, "server": 0.0}
        self.bytes = {"up": 0, "down": 0}

    def play(self, number: int, lost: int) -> bool:
        """Play a round in which the first sites are lost; return whether the sum is exact."""
        gone = list(self.sites)[:lost]
        self.seconds, self.bytes = {"site": 0.0, "server": 0.0}, {"up": 0, "down": 0}
        trips, replies = self.server.aggregate(number, REQUEST), None
        while True:
            start = time.process_time()
            try:
                trip = trips.send(replies)  # type: ignore[arg-type]
            except StopIteration as end:
                self.seconds["server"] += time.process_time() - start
                total = end.value
                return np.array_equal(total.vector, sum(self.inputs[name] for name in total.survivors))
            self.seconds["server"] += time.process_time() - start
            replies = {}
            for name, message in trip.messages.items():
                if name in gone:
                    continue
                start = time.process_time()
                self.states[name], replies[name] = self.sites[name].respond(
                    self.states[name], message, lambda _, name=name: (self.inputs[name], b"")
                )
                self.seconds["site"] += (time.process_time() - start) / (len(self.sites) - lost)
            self.bytes["up"] = max([self.bytes["up"], *map(len, replies.values())])
            self.bytes["down"] += max(map(len, trip.messages.values()))


def measured(n: int) -> tuple[str, bool]:
    """Return a line of the table, and whether it keeps the bars."""
    played, lost = Round(n), LOST.get(n, 0)
    exact = played.play(0, 0) and played.play(1, lost)
    site, server = played.seconds["site"], played.seconds["server"]
    most_site, most_server = BARS.get(n, (np.inf, np.inf))
    bars = f" (bar {most_site:g})" if n in BARS else "", f" (bar {most_server:g})" if n in BARS else ""
    line = (
        f"| {n} | {played.roster.threshold} | {lost} | {site:.2f}{bars[0]} | {server:.2f}{bars[1]} | "
        f"{played.bytes['up'] / 8 / SIZE:.4f} | {played.bytes['down'] / 1024:.1f} |"
    )
    return line, exact and site <= most_site and server <= most_server


def main() -> None:
    """Measure, write, compare."""
    parser = make_parser(__doc__)
    parser.add_argument("--sites", nargs="*", type=int, default=list(SITES))
    options = parser.parse_args()
    lines = [
        "# Secure aggregation: cost of a round",
        "",
        f"Written by `python benchmarks/secure_sum.py`: vectors of {SIZE} whole numbers; processor seconds of a site "
        "and of the server, bytes from a site relative to the plain vector, kilobytes to a site beside the request.",
        "",
        "| sites | threshold | lost | s, site | s, server | bytes from a site | kB to a site |",
        "|---|---|---|---|---|---|---|",
    ]
    kept = True
    for n in options.sites:
        line, good = measured(n)
        print(line, flush=True)
        lines.append(line)
        kept &= good
    if options.sites == list(SITES):
        write_page(OUT, "\n".join([*lines, "", *listed()]))
    if not kept:
        sys.exit("a bar is missed, or a sum is not exact")


if __name__ == "__main__":
    main()

"""What every command costs before it computes: processor time of its help, of an input error, and of `felb site log`.

    python benchmarks/bench_verbs.py              writes START.md
    python benchmarks/bench_verbs.py --repeats 1  quicker, and writes nothing

Each is a new process in an empty folder; the smallest of several is kept. The input error is a file, folder or name
that does not exist.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
from common import Figure, Section, at_most, facts, make_parser, write_page

from felb.cli import felb
from felb.privacy.outbound_log import OutboundLog, OutboundRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).with_name("START.md")
HELP_BAR, ERROR_BAR = 0.15, 0.5
WRONG = {
    "cite": ["no-method"],
    "data list": ["--no-such-option"],
    "experiment list": ["--no-such-option"],
    "choose-k": ["missing.csv", "-k", "2-3"],
    "compare": ["missing.csv", "--methods", "bmf", "-k", "3", "-o", "out"],
    "generate": ["out.npz", "--rows", "0"],
    "federation demo": ["--sites", "0"],
    "federation init": ["missing/missing", "--name", "a b", "--host", "localhost"],
    "privacy plan": ["--epsilon", "-1"],
}
"""Arguments of commands for which a missing file is no error, or not the only argument that they need."""


def leaves(group: click.Group, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """Return all commands that are no groups, by name."""
    context = click.Context(group, info_name=name)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None, word
        path = f"{name} {word}".strip()
        if isinstance(command, click.Group):
            yield from leaves(command, path)
        else:
            yield path, command


def wrong(name: str, command: click.Command) -> list[str]:
    """Return arguments with which a command ends in an error."""
    if name in WRONG:
        return [*name.split(), *WRONG[name]]
    given = name.split()
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and (parameter.required or not given[len(name.split()) :]):
            given.append("missing")
        elif isinstance(parameter, click.Option) and parameter.required:
            given += [parameter.opts[0], "1" if isinstance(parameter.type, click.types.FloatParamType) else "missing"]
    return given


def processor_seconds(arguments: list[str], folder: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run felb in a new process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "felb", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done


def measure(repeats: int) -> list[Section]:
    """Return the figures of all commands, slowest first."""
    helped, refused = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, command in leaves(felb):
            seconds = min(processor_seconds([*name.split(), "--help"], folder)[0] for _ in range(repeats))
            helped.append((seconds, f"`felb {name} --help`"))
            arguments = wrong(name, command)
            runs = [processor_seconds(arguments, folder) for _ in range(repeats)]
            done = runs[0][1]
            if done.returncode not in (1, 2) or "Traceback" in done.stderr or any(Path(folder).iterdir()):
                raise SystemExit(f"felb {' '.join(arguments)}: {done.returncode}\n{done.stdout}{done.stderr}")
            refused.append((min(seconds for seconds, _ in runs), f"`felb {' '.join(arguments)}`"))
            print(name, f"{helped[-1][0]:.3f} {refused[-1][0]:.3f}", flush=True)
        make_log(Path(folder) / "site")
        shown = min(processor_seconds(["site", "log", "site"], folder)[0] for _ in range(repeats))
    log = [at_most("`felb site log site`, two lines", shown, ERROR_BAR, "s")]
    return [
        Section("Logs", "Of a site with one run.", log),
        Section("Errors", "Slowest first.", listed(refused, ERROR_BAR)),
        Section("Help", "Slowest first.", listed(helped, HELP_BAR)),
    ]


def listed(measured: list[tuple[float, str]], bar: float) -> list[Figure]:
    """Return the figures in their order."""
    return [at_most(what, seconds, bar, "s") for seconds, what in sorted(measured, reverse=True)]


def make_log(site: Path) -> None:
    """Make what `felb site log` reads."""
    (site / "state").mkdir(parents=True)
    (site / "site.json").write_text('{"name": "a"}')
    log = OutboundLog(site / "state" / "first" / "outbound.jsonl")
    for number in range(2):
        log(OutboundRecord("a", number, "gram_sketch", "sketch", (3, 4), "int64", 96, "none", None))
    log.close()


def main() -> None:
    """Measure, print and write."""
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=int, help="new processes for each figure (default: 5)")
    options = parser.parse_args()
    known = facts()
    sections = measure(options.repeats or 5)
    figures = [figure for section in sections for figure in section.figures]
    missed = [figure for figure in figures if not figure.met]
    lines = ["# Start of every command", "", "Written by `python benchmarks/bench_verbs.py`.", ""]
    lines += ["Processor time of a new process, the smallest of five.", ""]
    lines += [f"- {name}: {value}" for name, value in known.items()]
    lines += ["", f"{len(figures) - len(missed)} of {len(figures)} bars are met.", ""]
    page = "\n".join([*lines, *(section.markdown() for section in sections)])
    print("\n".join(f"missed: {figure.what}: {figure.measured}" for figure in missed) or "all bars are met")
    if options.repeats is None:
        write_page(PAGE, page)


if __name__ == "__main__":
    main()

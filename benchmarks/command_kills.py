"""Kill commands that write at random moments: what they leave is the old or the new, and the next call completes it.

Every command runs in a forked process, which dies by SIGKILL: at a random instant of the time that the command takes,
or before a random one of its file operations, in turn. Afterwards

- what the command was to write is complete: the old, the new, or absent where there was none;
- nothing of a run's journal is inside of a published result;
- the command given again, or `--resume` where it offers that, ends with the undisturbed result;
- no other file is left in the folder.

    python benchmarks/command_kills.py                1000 kills; writes benchmarks/COMMAND_KILLS.md
    python benchmarks/command_kills.py --kills 40     a try; writes nothing
"""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import facts, make_parser, write_page

from felb.cli import main as felb_main
from felb.data import BinaryMatrix, planted
from felb.runs.execute import unfinished_job
from felb.runs.folder import JOB, JOURNAL, RESPONSES
from felb.runs.result import Result

FULL = 1000
OUT = Path(__file__).with_name("COMMAND_KILLS.md")
COUNTED = "count.txt"
KILLED = -signal.SIGKILL
INSIDE = (JOB, JOURNAL, RESPONSES, "lock", "done")
"""Names of a run's own files, which no published result may have."""

Content = Callable[[Path], str | None]
"""Reads what a command has written and returns a digest, None if it is still at it; raises if it is not complete."""


def of_file(path: Path) -> str:
    """Return a digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def of_matrix(path: Path) -> str:
    """Return a digest of a matrix file, which checks itself."""
    return hashlib.sha256(BinaryMatrix.open(path).toarray().tobytes()).hexdigest()


def of_result(path: Path) -> str:
    """Return a digest of the components of a result, its scores and its files' names."""
    result = published(path)
    names = sorted(str(file.relative_to(path)) for file in path.rglob("*"))
    return hashlib.sha256(repr((result.components.tolist(), result.scores, names)).encode()).hexdigest()


def published(path: Path) -> Result:
    """Return a result that has nothing of its run inside."""
    inside = [name for name in INSIDE if (path / name).exists()]
    if inside:
        raise AssertionError(f"{inside} of a run inside of its result")
    return Result.read(path)


def of_noise(path: Path) -> str:
    """Return what two private results have in common, whose components depend on noise."""
    result = published(path)
    return repr((result.components.shape, result.privacy["epsilon"], [row["task"] for row in result.history]))


def of_page(path: Path) -> str:
    """Return whether a page is a new one; pages tell the date."""
    text = path.read_text()
    if text != "old\n" and not text.rstrip().endswith("</html>"):
        raise AssertionError("a page that has no end")
    return "old" if text == "old\n" else "new"


def of_comparison(path: Path) -> str | None:
    """Return the methods and scores of a comparison, without seconds; its page is written last."""
    if not (path / "comparison.html").exists():
        return None
    of_page(path / "comparison.html")
    return "\n".join(line for line in (path / "table.csv").read_text().splitlines() if ",seconds," not in line)


@dataclass(frozen=True)
class Command:
    """A command that writes `target`.

    Parameters
    ----------
    words : its arguments
    target : the file or folder it writes
    content : what is compared
    before : files that are there when it starts, with the old content; from the folder of materials
    resumes : whether `--resume TARGET` completes what was interrupted
    """

    name: str
    words: tuple[str, ...]
    target: str
    content: Content
    before: tuple[str, ...] = ()
    resumes: bool = False


SIMULATE = ("simulate", "data.csv", "--clients", "3", "-k", "3", "-p", "effort=fast", "-o", "out")
COMPARE = ("compare", "data.csv", "--methods", "grecond+or,mebf+or", "-k", "2", "--seeds", "1", "--clients", "2")
COMMANDS = (
    Command("convert", ("convert", "data.csv", "new.felb"), "new.felb", of_matrix),
    Command("convert --force", ("convert", "data.csv", "old.felb", "--force"), "old.felb", of_matrix, ("old.felb",)),
    Command("fit", ("fit", "data.csv", "-k", "3", "-p", "effort=fast", "-o", "out"), "out", of_result, (), True),
    Command("simulate", SIMULATE, "out", of_result, (), True),
    Command("simulate --force", (*SIMULATE, "--force"), "out", of_result, ("out",), True),
    Command("simulate --secure", (*SIMULATE, "--secure"), "out", of_result, (), True),
    Command("simulate --epsilon", (*SIMULATE, "--epsilon", "4"), "out", of_noise, (), True),
    Command(
        "simulate --epsilon --force", (*SIMULATE, "--epsilon", "4", "--force"), "out", of_noise, ("private/out",), True
    ),
    Command("apply", ("apply", "out", "data.csv", "-o", "U.csv", "--force"), "U.csv", of_file, ("out", "U.csv")),
    Command("interpret --sets", ("interpret", "out", "--sets", "sets.gmt"), "sets.gmt", of_file, ("out",)),
    Command("compare", (*COMPARE, "-o", "cmp"), "cmp", of_comparison),
    Command("generate", ("generate", "gen", "-n", "60", "-m", "20", "-k", "3", "--force"), "gen.npz", of_file),
    Command("report", ("report", "out", "-o", "page.html", "--force"), "page.html", of_page, ("out", "page.html")),
)


def call(words: tuple[str, ...], folder: Path, hook: Operations | None = None) -> int:
    """Start a command in a forked process; return its number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn about forking beside threads
        child = os.fork()
    if child:
        return child
    os.chdir(folder)
    os.setsid()
    said = os.open(folder.parent / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    if hook is not None:
        sys.addaudithook(hook)
    try:
        felb_main(list(words))
    except SystemExit as ended:
        if hook is not None:
            (folder.parent / COUNTED).write_text(str(hook.count))
        os._exit(int(ended.code or 0))
    except BaseException:
        traceback.print_exc()
    os._exit(99)


def ended(child: int) -> int:
    """Wait for a process; return its exit code, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def completed(words: tuple[str, ...], folder: Path) -> None:
    """Run a command to its end."""
    code = ended(call(words, folder))
    if code:
        raise AssertionError(f"felb {' '.join(words)} ended with {code}: {(folder.parent / 'said.txt').read_text()}")


class Operations:
    """Counts file operations in a folder, and ends the process before one of them."""

    def __init__(self, folder: Path, last: int | None = None) -> None:
        self.folder, self.last, self.count = str(folder), last, 0

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        """Take an audit event."""
        if event not in {"open", "shutil.rmtree"} and not event.startswith("os."):
            return
        if event == "open" and isinstance(arguments[0], int):
            return
        if not any(isinstance(word, str | os.PathLike) and self._inside(word) for word in arguments):
            return
        self.count += 1
        if self.count == self.last:
            os.kill(os.getpid(), signal.SIGKILL)

    def _inside(self, word: str | os.PathLike[str]) -> bool:
        text = os.fspath(word)
        return isinstance(text, str) and (text.startswith(self.folder) or not text.startswith("/"))


@dataclass
class Trial:
    """A command with its materials, and what it does undisturbed."""

    command: Command
    materials: Path
    folder: Path

    def __post_init__(self) -> None:
        self.prepare()
        self.old = self.digest()
        start = time.monotonic()
        ended(call(self.command.words, self.folder, Operations(self.folder)))
        self.seconds = time.monotonic() - start
        self.operations = int((self.folder.parent / COUNTED).read_text())
        self.new = self.digest()
        if self.new is None:
            raise AssertionError(f"{self.command.name} wrote nothing")
        self.names = {path.name for path in self.folder.iterdir()}

    def prepare(self) -> None:
        """Make the folder as it was before the command."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        shutil.copy(self.materials / "data.csv", self.folder)
        for name in self.command.before:
            source, target = self.materials / name, self.folder / Path(name).name
            if source.is_dir():
                shutil.copytree(source, target)
            else:
                shutil.copy(source, target)

    def digest(self) -> str | None:
        """Return what is there; None if nothing is."""
        path = self.folder / self.command.target
        return self.command.content(path) if path.exists() else None

    def killed(self, rng: random.Random, *, by_operation: bool) -> str:
        """Kill the command once and check everything; return what was found there."""
        self.prepare()
        if by_operation:
            hook = Operations(self.folder, last=rng.randint(1, self.operations))
            code = ended(call(self.command.words, self.folder, hook))
        else:
            child = call(self.command.words, self.folder)
            timer = threading.Timer(rng.uniform(0, 1.05 * self.seconds), os.kill, (child, signal.SIGKILL))
            timer.start()
            code = ended(child)
            timer.cancel()
        if code not in (0, KILLED):
            raise AssertionError(f"ended with {code}: {(self.folder.parent / 'said.txt').read_text()}")
        found = self.digest()
        if found not in (self.old, self.new):
            raise AssertionError("what is there is neither the old nor the new")
        self.complete(found)
        if self.digest() != self.new:
            raise AssertionError("the completed result differs from the undisturbed one")
        left = {path.name for path in self.folder.iterdir()} - self.names
        if left:
            raise AssertionError(f"{sorted(left)} is left in the folder")
        return "not killed" if code == 0 else "absent" if found is None else "new" if found == self.new else "old"

    def complete(self, found: str | None) -> None:
        """Resume what was interrupted, or give the command again."""
        target = self.folder / self.command.target
        if self.command.resumes and unfinished_job(target) is not None:
            completed((self.command.words[0], "--resume", self.command.target), self.folder)
        elif found != self.new or self.old == self.new:
            completed(self.command.words, self.folder)
        else:  # the next process of felb that writes there clears away what is left
            completed(("convert", "data.csv", "other.felb"), self.folder)
            (self.folder / "other.felb").unlink()


def warm_up(folder: Path) -> None:
    """Load modules and kernels here, so that forked processes have them."""
    os.chdir(folder)
    with (folder / "said.txt").open("w") as said, redirect_stdout(said), redirect_stderr(said):
        for words in ((*SIMULATE[:-1], "warm"), (*SIMULATE[:-1], "warm-private", "--epsilon", "4")):
            with suppress(SystemExit):
                felb_main(list(words))
    shutil.rmtree("warm")
    shutil.rmtree("warm-private")


def make_materials(folder: Path) -> None:
    """Make data, and what commands find there."""
    rows = planted(80, 14, 3, noise=0.05, seed=0).A.toarray().astype(int)
    lines = [",".join(f"f{j}" for j in range(14)), *(",".join(map(str, row)) for row in rows)]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    warm_up(folder)
    BinaryMatrix.of(np.eye(4)).save(folder / "old.felb")
    completed(("simulate", "data.csv", "--clients", "2", "-k", "2", "--method", "grecond+or", "-o", "out"), folder)
    (folder / "private").mkdir()
    completed((*SIMULATE[:-1], "private/out", "--epsilon", "2"), folder)
    for name in ("U.csv", "page.html"):
        (folder / name).write_text("old\n")


def main() -> None:
    """Kill each command in turn; write a table."""
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=FULL)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="commands whose names begin like this")
    options = parser.parse_args()
    rng, about = random.Random(options.seed), facts()
    outcomes: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / "materials").mkdir()
        make_materials(root / "materials")
        chosen = [command for command in COMMANDS if command.name.startswith(options.only)]
        trials = [Trial(command, root / "materials", root / "work") for command in chosen]
        kills = 0
        while kills < options.kills:
            for number, trial in enumerate(trials):
                try:
                    found = trial.killed(rng, by_operation=(kills + number) % 2 == 0)
                except AssertionError as error:
                    sys.exit(f"{trial.command.name}, after {kills} kills: {error}")
                outcomes[trial.command.name, found] += 1
                kills += found != "not killed"
            print(f"{kills} kills", flush=True)
    columns = ("absent", "old", "new")
    lines = [
        "# Commands that are killed",
        "",
        f"Written by `benchmarks/command_kills.py`: {kills} kills, half of them at random instants and half before",
        "random file operations. What was there afterwards was absent, the old or the new, and always complete; the",
        "command given again, or resumed, ended with the undisturbed result and left nothing beside it.",
        "",
        "| command | kills | absent | old | new |",
        "|---|---|---|---|---|",
        *(
            f"| `{command.name}` | {sum(outcomes[command.name, word] for word in columns)} | "
            + " | ".join(str(outcomes[command.name, word]) for word in columns)
            + " |"
            for command in chosen
        ),
        "",
        *(f"- {name}: {fact}" for name, fact in about.items()),
        "",
    ]
    print("\n".join(lines))
    if options.kills >= FULL:
        write_page(OUT, "\n".join(lines))


if __name__ == "__main__":
    main()

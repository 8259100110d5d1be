"""Print the tests that mirror a source file: those named after it, and those beside them that import it.

If there are none, those that mention its name; if there are none either, all tests of the folder that mirrors the
file's own. A file of tests mirrors itself.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def mirror(file: Path) -> list[Path]:
    """Return the tests of a file, as paths."""
    if "tests" in file.relative_to(ROOT).parts:
        return [file]
    package = next((place for place in (ROOT / "packages").iterdir() if file.is_relative_to(place / "src")), None)
    if package is None:
        sys.exit(f"{file} is neither in the sources nor in the tests of a package")
    name, *rest = file.relative_to(package / "src").with_suffix("").parts
    inside, tests = Path(*rest), package / "tests"
    module = ".".join((name, *rest)).removesuffix(".__init__")
    folder = next(place for at in inside.parents if (place := tests / at).is_dir())
    beside = {test: test.read_text(encoding="utf-8") for test in sorted(folder.glob("test_*.py"))}
    near = [test for test, text in beside.items() if inside.name in test.stem or f"{module} import" in text]
    return near or [test for test, text in beside.items() if re.search(rf"\b{inside.name}\b", text)] or list(beside)


if __name__ == "__main__":
    sys.stdout.write("\n".join(str(test.relative_to(ROOT)) for test in mirror(Path(sys.argv[1]).resolve())) + "\n")

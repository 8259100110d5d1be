"""Print the tests that mirror a source file: those named after it, and those beside them that import it.

If there are none, those that mention its name; if there are none either, all tests of the folder that mirrors the
file's own. A file of tests mirrors itself.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE, TESTS = ROOT / "src" / "felb", ROOT / "tests"


def mirror(file: Path) -> list[Path]:
    """Return the tests of a file, as paths."""
    if file.is_relative_to(TESTS):
        return [file]
    if not file.is_relative_to(SOURCE):
        sys.exit(f"{file} is neither in src/felb nor in tests")
    inside = file.relative_to(SOURCE).with_suffix("")
    module = ".".join(("felb", *inside.parts)).removesuffix(".__init__")
    folder = next(place for at in inside.parents if (place := TESTS / at).is_dir())
    beside = {test: test.read_text(encoding="utf-8") for test in sorted(folder.glob("test_*.py"))}
    near = [test for test, text in beside.items() if inside.name in test.stem or f"{module} import" in text]
    return near or [test for test, text in beside.items() if re.search(rf"\b{inside.name}\b", text)] or list(beside)


if __name__ == "__main__":
    sys.stdout.write("\n".join(str(test.relative_to(ROOT)) for test in mirror(Path(sys.argv[1]).resolve())) + "\n")

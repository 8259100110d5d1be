"""Facts about the machine a benchmark ran on, without anything that names it."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "llvmlite")


def facts() -> dict[str, str]:
    """Return processor, cores, caches, vector width, memory, versions, date and load average, as far as known."""
    import felb

    processor = _cpuinfo("model name") or platform.processor() or platform.machine()
    family = "/".join(filter(None, (_cpuinfo("cpu family"), _cpuinfo("model\t"), _cpuinfo("stepping"))))
    found = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": processor + (f" (family/model/stepping {family})" if family else ""),
        "cores for this process": str(_cores()),
        "caches": _caches(),
        "vectors": _vectors(),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}, {platform.machine()}",
        "versions": ", ".join(
            [f"felb {felb.__version__} {_revision()}".strip(), f"Python {platform.python_version()}"]
            + [f"{name} {version(name)}" for name in PACKAGES]
        ),
        "load average at start": load_average(),
    }
    return {name: value for name, value in found.items() if value}


def listed(*, load: bool = True) -> list[str]:
    """Return the facts as a Markdown list, with or without the load average."""
    return [f"- {name}: {value}" for name, value in facts().items() if load or name != "load average at start"]


def load_average() -> str:
    """Return the load averages over 1, 5 and 15 minutes."""
    return ", ".join(f"{load:.2f}" for load in os.getloadavg()) if hasattr(os, "getloadavg") else ""


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpuinfo(field: str) -> str:
    path = Path("/proc/cpuinfo")
    found = re.search(rf"^{field}\s*: (.*)$", path.read_text(), re.MULTILINE) if path.exists() else None
    return found[1].strip() if found else ""


def _caches() -> str:
    parts = []
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        parts.append(f"L{level}{kind[0].lower() if kind != 'Unified' else ''} {size}")
    return ", ".join(parts)


def _vectors() -> str:
    flags = _cpuinfo("flags").split()
    for flag, width in (("avx512f", "512 bits (AVX-512)"), ("avx2", "256 bits (AVX2)"), ("sse2", "128 bits (SSE2)")):
        if flag in flags:
            return width
    return "128 bits (NEON)" if platform.machine() in ("arm64", "aarch64") else ""


def _memory() -> str:
    if "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", {}):
        return ""
    return f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GB"


def _revision() -> str:
    """Return the commit that is measured, and whether files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    run = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return f"({run.stdout.strip()})" if run.returncode == 0 else ""


if __name__ == "__main__":
    for name, value in facts().items():
        print(f"{name}: {value}")

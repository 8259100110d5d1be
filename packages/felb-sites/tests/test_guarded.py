"""A job of FLARE ends with the service that started it."""

import os
import signal
import subprocess
import sys

import pytest

pytest.importorskip("nvflare")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="a parent is killed")

CHILD = """
import time
from felb_sites.guarded import follow_parent
follow_parent(0.05)
print("on", flush=True)
time.sleep(600)
print("still here")
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def test_a_job_ends_when_its_service_is_killed():
    with subprocess.Popen([sys.executable, "-c", PARENT, CHILD], stdout=subprocess.PIPE) as parent:
        assert parent.stdout.readline() == b"on\n"
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        assert parent.stdout.read() == b"", "ends with the last process that has the pipe"

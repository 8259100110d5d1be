"""A process that measures cells: one line of JSON in for each, one out when it starts to count, one when it is done.

A process of its own can be ended when a cell takes too long, and a crash in it costs one cell. It ends when its input
is closed, also in the middle of a cell, so that nothing is left behind by a parent that died.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Request = dict[str, Any]

READY, STARTED = {"ready": True}, {"started": True}
LONGEST_MESSAGE = 500


def answered(measure: Callable[[Request], dict[str, Any]], request: Request) -> dict[str, Any]:
    """Measure the cell of a request; an error becomes an answer too."""
    start = time.perf_counter()
    try:
        measured = measure(request)
    except Exception as error:  # whatever a method raises belongs into the record of its cell
        message = " ".join(f"{type(error).__name__}: {error}".split())[:LONGEST_MESSAGE]
        return {"status": "failed", "message": message, "seconds": time.perf_counter() - start}
    return {"status": "done", "seconds": time.perf_counter() - start, **measured}


def serve(measure: Callable[[Request], dict[str, Any]], *, warm_up: Callable[[Request], None]) -> None:
    """Answer requests until there are no more; neither importing nor compiling is part of a cell's time."""
    from felb.runs.result import finite

    # What a library prints must not get between the answers.
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    requests: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            requests.put(line)
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()

    def tell(reply: dict[str, Any]) -> None:
        out.write(json.dumps(finite(reply), allow_nan=False) + "\n")
        out.flush()

    tell(READY)
    while True:
        request = json.loads(requests.get())
        with suppress(Exception):  # what is wrong will be told by the cell itself
            warm_up(request)
        tell(STARTED)
        tell(answered(measure, request))

"""One client's rows in several threads: parts of them answer a request, and their updates are added up.

An update is a sum over rows of whole numbers, so it has the same bits however the rows are cut. Kernels release the
interpreter, so the threads run side by side.
"""

from __future__ import annotations

from contextvars import copy_context
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from felb.federated.protocol import Update
from felb.kernels.schedule import split_rows

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

    import numpy as np

    from felb.data.binary import BinaryMatrix
    from felb.federated.protocol import Algorithm, Request

LEAST_ONES = 20_000
"""Ones of a span; with fewer, starting a thread takes longer than the work."""


def respond_in_spans(
    algorithm: Algorithm,
    state: Any,
    shard: BinaryMatrix,
    request: Request,
    *,
    rng: np.random.Generator,
    pool: ThreadPoolExecutor,
    spans: int,
) -> tuple[Any, Update]:
    """Do the task that a request names, in `spans` parts of the rows where the algorithm says that it may be.

    Parts have about the same work. The result has the same bits as that of `Algorithm.respond`. A state, too, is cut
    and put together again by rows.
    """
    spans = min(spans, len(shard), shard.nnz // LEAST_ONES)
    if request.task not in algorithm.row_tasks or spans < 2:
        return algorithm.respond(state, shard, request, rng=rng)

    def respond(span: tuple[int, int]) -> tuple[Any, Update]:
        start, stop = span
        part = None if state is None else state.rows(start, stop)
        return algorithm.respond(part, shard.rows(start, stop), request, rng=rng)

    # Each with a context of its own, in which the deadline of the run stands.
    jobs = [pool.submit(copy_context().run, partial(respond, span)) for span in split_rows(shard, spans)]
    states, updates = zip(*(job.result() for job in jobs), strict=True)
    joined = None if states[0] is None else algorithm.state_type.joined(states)
    return joined, reduce(Update.plus, updates)

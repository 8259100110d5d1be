"""Play an algorithm over the blocks of a Dask cluster."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from felb.engines.dask.state_folder import state_folder
from felb.engines.dask.transport import PERSIST_EVERY, DaskWorkers
from felb.errors import InputError
from felb.federated.gate import check_resumable, client_gate
from felb.federated.loop import Run, RunProgress, play
from felb.federated.single_shard import OWNER
from felb.kernels.blas import one_blas_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from distributed import Client, Future

    from felb.deadline import Deadline
    from felb.federated.gate import Gate
    from felb.federated.journal import Journal
    from felb.federated.participation import Participation
    from felb.federated.protocol import Algorithm
    from felb.federated.responses import Responses
    from felb.privacy.mechanisms import Mechanism
    from felb.privacy.outbound_log import OutboundRecord


def run(
    algorithm: Algorithm,
    blocks: Mapping[str, Future],
    *,
    client: Client,
    seed: int = 0,
    participation: Participation | None = None,
    deadline: Deadline | None = None,
    journal: Journal | None = None,
    states: Path | None = None,
    persist_every: int | None = None,
    on_round: Callable[[RunProgress], None] = lambda _: None,
    outbound: Callable[[str], Callable[[OutboundRecord], None]] = lambda _: lambda _: None,
    responses: Callable[[str], Responses] | None = None,
    mechanism: Mechanism | None = None,
    owner: str = OWNER,
) -> Run:
    """Play an algorithm to its end on blocks that Dask workers hold.

    Blocks are one owner's: nothing leaves the cluster but the result, and what a privacy plan lets out. Under a plan
    about records, the sum over all blocks passes one gate, with noise as for one client. Under a plan about clients,
    every block is a client with a gate of its own.

    Parameters
    ----------
    algorithm, seed, participation, deadline, on_round, outbound, responses, mechanism : as on the local engine
    blocks : rows of each client by its name, as futures
    client : of the cluster
    journal : of a new run or of one that was interrupted; needs `states`
    states : folder that all workers share, for the states of clients
    persist_every : rounds between two times that states are written; by default what Dask's setting
        ``felb.persist-every`` says, or 10
    owner : name of the one client under a plan about records
    """
    import dask

    check_resumable(algorithm, journal, responses)
    if journal is not None and journal.folder is not None and states is None:
        raise InputError("a run on Dask that keeps a journal needs a folder for states that all workers share")
    every: Any = persist_every or dask.config.get("felb.persist-every", PERSIST_EVERY)
    if not isinstance(every, int) or every < 1:
        raise InputError(f"felb.persist-every must be a whole number of rounds, got {every!r}")

    def gate(name: str) -> Gate:
        return client_gate(name, algorithm, outbound(name), responses=responses, mechanism=mechanism)

    gates: Gate | Mapping[str, Gate] | None = None
    if algorithm.privacy is not None and algorithm.privacy.uploads is None:
        gates = gate(owner)
    elif algorithm.privacy is not None or mechanism is not None:
        gates = {name: gate(name) for name in sorted(blocks)}
    with one_blas_thread(), state_folder(client, states) as store:
        transport = DaskWorkers(
            algorithm,
            blocks,
            client=client,
            seed=seed,
            gates=gates,
            participation=participation,
            states=store,
            persist_every=every,
        )
        finished = play(algorithm, transport, seed=seed, journal=journal, deadline=deadline, on_round=on_round)
        assert finished is not None
        return replace(finished, assignments=transport.assignments)

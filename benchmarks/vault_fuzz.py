"""A million random and mutated messages against a vault: it answers nothing but the approved run's first request.

Once against a run in the clear, and once against one whose sums are masked: the messages of a whole round of secure
aggregation and a roster, changed in their bytes and in their structure. There the vault signs one list of survivors,
masks one input with each key, tells one of the two secrets of each site, and takes no roster that nobody has confirmed.

    python benchmarks/vault_fuzz.py [COUNT] [SEED]

COUNT messages of each kind.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from felb.data.files import load
from felb.federated.journal import digest
from felb.federated.loop import Execution
from felb.secure_sum.protocol import (
    Confirmation,
    FromSite,
    MaskedInput,
    Roster,
    SurvivorList,
    ToSite,
    Unmasking,
    decode,
    member_of,
    new_signing_key,
    signer,
)
from felb.secure_sum.server import SecureServer
from felb.secure_sum.site import SecureSite, SiteState
from felb_sites.approvals import Approvals, plan_digest
from felb_sites.masked_session import sum_terms
from felb_sites.messages import vault_message, write_question, write_request, write_trip
from felb_sites.reasons import REASONS
from felb_sites.run_plan import Plan
from felb_sites.site_logs import read_outbound
from felb_sites.site_policy import Policy, SiteConfig
from felb_sites.site_roster import SiteRosters, write_roster
from felb_sites.vault import OK, Vault
from felb_sites.vault_fuzzing import mutated_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from felb.federated.protocol import Request
    from felb_sites.vault import Reply
    from felb_sites.vault_fuzzing import Message

PLAN = Plan("fuzzed", "felb-mu", 4, 17, {"max_iter": 3}, sites=4)
NAME, OTHERS = "a", ("b", "c", "d")


def first_request(plan: Plan) -> Request:
    """Return what is asked first."""
    request = Execution(plan.algorithm(), seed=plan.seed).request
    assert request is not None
    return request


def config_in(folder: Path) -> SiteConfig:
    """Set up a site with the zoo data that approves nothing by itself."""
    policy = Policy(require_privacy=False, disclosure="none")
    sp.save_npz(folder / "data.npz", load("zoo").to_scipy(bool))
    return SiteConfig(str(folder / "data.npz"), str(folder / "state"), policy=policy)


class Observer:
    """What all replies of a vault in a run in the clear may be."""

    def __init__(self) -> None:
        self.answers: set[bytes] = set()

    def __call__(self, message: Message, reply: Reply) -> None:  # noqa: ARG002
        """Look at one reply."""
        if reply.values:
            self.answers.add(reply.values)
        assert len(self.answers) <= 1

    @property
    def told(self) -> str:
        """What has left."""
        return f"distinct answers: {len(self.answers)}"


class MaskedObserver:
    """What all replies of a vault in a run with masked sums may be: the three rules of `secure_site`."""

    def __init__(self) -> None:
        self.vectors: dict[str, set[bytes]] = defaultdict(set)
        self.signed: set[tuple[str, ...]] = set()
        self.seeds: dict[str, set[str]] = defaultdict(set)
        self.keys: dict[str, set[str]] = defaultdict(set)

    def __call__(self, message: Message, reply: Reply) -> None:
        """Look at one reply; those to questions are empty."""
        if not reply.values:
            return
        told = decode(reply.values, FromSite).sum
        if isinstance(told, MaskedInput):
            self.vectors[told.context].add(told.vector)
            assert len(self.vectors[told.context]) == 1
        elif isinstance(told, Confirmation):
            asked = decode(message[1], ToSite).sum
            assert isinstance(asked, SurvivorList)
            self.signed.add(asked.survivors)
            assert len(self.signed) == 1, "of the first round, which is the only one"
        elif isinstance(told, Unmasking):
            self.seeds[told.context] |= told.seeds.keys()
            self.keys[told.context] |= told.keys.keys()
            assert not self.seeds[told.context] & self.keys[told.context]

    @property
    def told(self) -> str:
        """What has left."""
        return f"masked inputs: {len(self.vectors)}, lists of survivors signed: {len(self.signed)}"


def fuzz(
    vault: Vault, honest: list[Message], observe: Callable[[Message, Reply], None], *, count: int, seed: int
) -> Counter[str]:
    """Send messages, look at every reply, and return how often there was which."""
    codes: Counter[str] = Counter()
    for message in mutated_messages(random.Random(seed), honest, count):
        reply = vault.handle(*message)
        codes[reply.code] += 1
        assert reply.code in (OK, *REASONS)
        assert reply.code == OK or not reply.values
        observe(message, reply)
    return codes


def in_the_clear(folder: Path, *, count: int, seed: int) -> tuple[Counter[str], str]:
    """Play against a run whose sums are in the clear."""
    config = config_in(folder)
    vault = Vault(NAME, lambda: config)
    question = vault_message(write_question(), PLAN.to_json())
    vault.handle(*question)
    Approvals(config.state).approve(PLAN.run_id, plan_digest(PLAN))
    observer = Observer()
    honest = [vault_message(write_request(first_request(PLAN)), PLAN.to_json()), question]
    codes = fuzz(vault, honest, observer, count=count, seed=seed)
    assert {line["round"] for line in read_outbound(Path(config.state))} <= {0}
    vault.close()
    return codes, observer.told


def masked(folder: Path, *, count: int, seed: int) -> tuple[Counter[str], str]:
    """Play against a run whose sums are masked, after one honest round of it."""
    config, rosters = config_in(folder), SiteRosters(folder / "vault", NAME)
    keys = {name: new_signing_key() for name in OTHERS}
    roster = Roster((rosters.own, *(member_of(name, key) for name, key in keys.items())))
    plan = Plan(**{**PLAN.to_json(), "roster": roster.digest})
    vault = Vault(NAME, lambda: config, rosters=rosters)
    question = vault_message(write_question(write_roster(roster)), plan.to_json())
    assert vault.handle(*question).code == "pending"
    Approvals(config.state).approve(plan.run_id, plan_digest(plan))
    assert vault.handle(*question).code == "roster"
    rosters.confirm(roster.digest)
    terms = sum_terms(plan, roster)
    others = {name: SecureSite(name, roster, terms, signer(key)) for name, key in keys.items()}
    honest, observer = [question], MaskedObserver()
    for message, reply in honest_round(vault, plan, SecureServer(roster, terms), others):
        honest.append(message)
        observer(message, reply)
    codes = fuzz(vault, honest, observer, count=count, seed=seed)
    assert {line["round"] for line in read_outbound(Path(config.state))} == {0}
    assert rosters.confirmed() == [roster]
    vault.close()
    return codes, observer.told


def honest_round(
    vault: Vault, plan: Plan, server: SecureServer, others: dict[str, SecureSite]
) -> list[tuple[Message, Reply]]:
    """Play the first round with a vault and other sites; return what was said to the vault, and its replies."""
    request, said = first_request(plan), list[tuple[Any, Any]]()
    states, shape = dict.fromkeys(others, SiteState()), (0, b"")
    trips = server.aggregate(request.round, digest(request))
    trip = next(trips)
    while True:
        order = write_request(request) if trip.step == "masked input" else None
        message = vault_message(write_trip(trip.messages, request.round, order), plan.to_json(), site=NAME)
        reply = vault.handle(*message)
        assert reply.code == OK
        said.append((message, reply))
        told = decode(reply.values, FromSite).sum
        if isinstance(told, MaskedInput):
            shape = len(told.vector) // 8, told.layout
        replies = {NAME: reply.values}
        for name, site in others.items():
            states[name], replies[name] = site.respond(
                states[name], trip.messages[name], lambda _, shape=shape: (np.zeros(shape[0], np.int64), shape[1])
            )
        try:
            trip = trips.send(replies)
        except StopIteration:
            return said


def main(count: int = 1_000_000, seed: int = 0) -> None:
    """Send messages and print what came back."""
    for kind in (in_the_clear, masked):
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            codes, told = kind(Path(folder), count=count, seed=seed)
            seconds = time.perf_counter() - begun
        name = kind.__name__.replace("_", " ")
        print(f"{name}: {count} messages in {seconds:.0f} s, {count / seconds:.0f} a second; {told}")
        for code, times in codes.most_common():
            print(f"  {code:10} {times}")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))

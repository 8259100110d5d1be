"""Sites and a server of secure sums in one process, over a courier that a test can interfere with."""

import numpy as np

from felb.secure_sum.protocol import Roster, Terms, member_of, new_signing_key, signer
from felb.secure_sum.server import SecureServer
from felb.secure_sum.site import SecureSite, SiteState

REQUEST = "a" * 64
KEYS = [new_signing_key() for _ in range(50)]
STEPS = ("keys", "shares", "masked input", "consistency", "unmask")


def names_of(n):
    return [f"site-{i:02}" for i in range(n)]


class Sites:
    """`n` sites of one roster, each with its state."""

    def __init__(self, n, *, dropouts=None, keys=KEYS, plan="p"):
        self.keys = dict(zip(names_of(n), keys, strict=False))
        self.roster = Roster(tuple(member_of(name, key) for name, key in self.keys.items()))
        self.terms = Terms("run", plan, self.roster.digest, self.roster.most_dropouts if dropouts is None else dropouts)
        self.sites = {n: SecureSite(n, self.roster, self.terms, signer(key)) for n, key in self.keys.items()}
        self.states = dict.fromkeys(self.keys, SiteState())
        self.answers = 0

    @property
    def names(self):
        return list(self.keys)

    def server(self, **options):
        return SecureServer(self.roster, self.terms, **options)

    def tell(self, name, message, inputs):
        """Bring one message to a site; the state goes through bytes, as at a site that stores it."""

        def answer(order):
            self.answers += 1
            return inputs[name], b"x"

        state = SiteState.from_bytes(self.states[name].to_bytes())
        self.states[name], reply = self.sites[name].respond(state, message, answer)
        return reply

    def play(self, trips, inputs, *, courier=lambda trip, name, deliver: deliver()):
        """Play the trips of a server; `courier` brings a message by calling `deliver`, or returns what it likes."""
        trip = next(trips)
        while True:
            replies = {}
            for name, message in trip.messages.items():
                reply = courier(trip, name, lambda name=name, message=message: self.tell(name, message, inputs))
                if reply is not None:
                    replies[name] = reply
            try:
                trip = trips.send(replies)
            except StopIteration as end:
                return end.value


def losing(lost):
    """Return a courier that loses the messages to the sites that are lost at a step, and ever after."""

    def courier(trip, name, deliver):
        first = lost.get(name)
        gone = first is not None and STEPS.index(trip.step) >= STEPS.index(first)
        return None if gone else deliver()

    return courier


def some_inputs(names, size=5, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-(2**57), 2**57, size) for name in names}


def is_exact(total, inputs):
    return np.array_equal(total.vector, sum(inputs[name] for name in total.survivors))

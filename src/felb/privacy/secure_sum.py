"""Secure aggregation: the server learns the sum of the sites' whole numbers and no site's own.

The protocol is that of Bonawitz et al. (CCS 2017) for a malicious server, with every site linked to every other. Site i
has the input x_i, a vector mod 2^64, and makes for each sum fresh secrets: a seed b_i, an X25519 key s_i for masks and
another one for a channel to each site. With PRG = AES-256-CTR and s_ij = HKDF(X25519(s_i, s_j)):

1. keys: each site signs its public keys; the others check them against their own roster.
2. shares: each site seals to each other one a share of b_i and one of s_i; t > 2n/3 shares give the secret back.
3. masked input: y_i = x_i + PRG(b_i) + Σ_{j>i} PRG(s_ij) − Σ_{j<i} PRG(s_ij).
4. consistency: the server names the survivors, whose y_i it has; each of them signs the list, once for a run and round.
5. unmask: with t signatures on the same list, each site tells its shares of b_i of survivors and of s_i of the others.

In Σ y_i over the survivors the masks of pairs of survivors cancel. The server takes off PRG(b_i) and the masks that
survivors share with lost sites. It never gets both secrets of one site, so a y_i alone stays random.

Every signature and derived key is bound to the `Context`: version, run, plan, roster, keys, round, request and
participants. A site that gets other values than the rest derives other masks, and nothing comes out. The keys and
shares of the next sum travel with steps 3 to 5, before its request is known; they are bound to run, plan, roster and a
number that only grows, and the request enters where masks are derived from them.

A round that failed is asked again with new keys, which is a new context. A site that has confirmed the survivors of a
round confirms no others for it, whatever the context: two sums of one round could be subtracted.

`secure_site` has the site, `secure_server` the server, `secure_messages` what travels, `secure_roster` who the sites
are and `secure_masks` the cryptography. Here is what both sides compute.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from felb.errors import InputError
from felb.privacy.secure_masks import agreed_key, derived_key, usable
from felb.privacy.secure_messages import Digest, Names, Number  # noqa: TC001 - msgspec reads them

if TYPE_CHECKING:
    from felb.privacy.secure_messages import KeyOffer
    from felb.privacy.secure_roster import Roster

VERSION = "felb-secure-sum-1"
Word = Annotated[str, msgspec.Meta(max_length=256)]


class Terms(msgspec.Struct, frozen=True):
    """What all secure sums of a run have in common; each site knows it before the first message.

    Parameters
    ----------
    run : name of the run
    plan : digest of the plan that the site has approved
    roster : digest of the roster that the site has confirmed
    dropouts : sites that may be missing in a sum; a site takes part in no sum of fewer than n − dropouts
    """

    run: Word
    plan: Word
    roster: Digest
    dropouts: Number = 0

    def key_context(self, setup: int) -> bytes:
        """Bind keys and shares, which are made before the next request is known, to the run and their number."""
        return bound("keys", self, setup)


class Context(msgspec.Struct, frozen=True):
    """What one sum is: it is part of every key that masks and of every signature.

    Parameters
    ----------
    terms : version, run, plan and roster
    setup : number of the keys; a repeated round has new ones
    round : number of the request in the run
    request : digest of the request
    offers : digest of all key offers that the site has seen
    participants : sites whose keys are in the masks
    """

    terms: Terms
    setup: Number
    round: Number
    request: Digest
    offers: Digest
    participants: Names

    def digest(self) -> str:
        """Return the SHA-256 by which messages name it."""
        return hashlib.sha256(bound("sum", self)).hexdigest()


def bound(purpose: str, *values: Any) -> bytes:
    """Return an unambiguous text of values for one purpose, to be signed or derived from."""
    return msgspec.msgpack.encode([VERSION, purpose, *values])


def offers_digest(offers: tuple[KeyOffer, ...]) -> str:
    """Return the SHA-256 of a list of offers."""
    return hashlib.sha256(bound("offers", offers)).hexdigest()


def check_terms(terms: Terms, roster: Roster) -> None:
    """Raise unless terms are for this roster and leave enough sites to open the sum."""
    if terms.roster != roster.digest:
        raise InputError("the terms of the run are for another roster; confirm the one of the run")
    if terms.dropouts > roster.most_dropouts:
        raise InputError(
            f"with {len(roster.names)} sites a sum can do without {roster.most_dropouts} of them at most, "
            f"not {terms.dropouts}",
            parameter="dropouts",
        )


def offer_text(terms: Terms, setup: int, site: str, *keys: bytes) -> bytes:
    """Return what a site signs for its keys."""
    return bound("offer", terms.key_context(setup), site, *keys)


def offer_holds(offer: KeyOffer, terms: Terms, roster: Roster) -> bool:
    """Tell whether the keys of an offer are those of a site of the roster, for this number."""
    text = offer_text(terms, offer.setup, offer.site, offer.channel, offer.masks, offer.seed)
    return usable(offer.channel) and usable(offer.masks) and roster.verifies(offer.site, offer.signature, text)


def commitment(seed: bytes, terms: Terms, setup: int) -> bytes:
    """Return what is public about a seed, so that the server can tell whether shares gave it back."""
    return hashlib.sha256(bound("commitment", terms.key_context(setup), seed)).digest()


def seed_key(seed: bytes, context: str) -> bytes:
    """Return the key of a site's own mask in a sum."""
    return derived_key(seed, bound("seed", context))


def pair_key(private: bytes, public: bytes, context: str) -> bytes:
    """Return the key of the mask that two sites share in a sum."""
    return agreed_key(private, public, bound("pair", context))


def pair_sign(site: str, other: str) -> int:
    """Return +1 where a site adds the mask that it shares with another, −1 where it subtracts it."""
    return 1 if site < other else -1


def input_text(context: str, site: str, layout: bytes, vector: bytes) -> bytes:
    """Return what a site signs for its masked input."""
    return bound("input", context, site, layout, hashlib.sha256(vector).digest())


def survivors_text(context: str, survivors: tuple[str, ...]) -> bytes:
    """Return what a site signs to confirm the survivors of a sum."""
    return bound("survivors", context, survivors)


def unmasking_text(context: str, site: str, seeds: dict[str, bytes], keys: dict[str, bytes]) -> bytes:
    """Return what a site signs for its shares."""
    return bound("unmasking", context, site, sorted(seeds.items()), sorted(keys.items()))

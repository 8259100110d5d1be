"""Vaults that are started with this folder on their path draw noise that tests can repeat."""

import sys

if "felb_sites.vault_process" in sys.orig_argv:
    from seeded_noise import rounded_normal

    from felb.privacy import mechanisms as discrete

    discrete.discrete_gaussian = rounded_normal

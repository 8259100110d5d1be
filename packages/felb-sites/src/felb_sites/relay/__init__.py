"""The relay: one HTTPS port through which sealed envelopes pass; it opens none and signs nothing."""

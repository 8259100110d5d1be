"""Passes over binary matrices, compiled or on packed bits; the only package that compiles.

The fractional bits of sums in fixed point stand here, since messages are declared by them and need no compiled code.
"""

SKETCH_BITS = 20
"""Fractional bits of a sketch Q; A Q and AᵀA Q then add up exactly in float64 up to 2^33 pairs of ones a column."""

UPLOAD_BITS = 32
"""Fractional bits of an uploaded factor with entries of order one; those above 2^-9 keep all bits of a float32."""

WEIGHTED_BITS = 24
"""Fractional bits of weighted uploads, as many as a float32 in [½, 1) has. Whole multiples add up exactly below 2^39,
those in float64 below 2^29."""

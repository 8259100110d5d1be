"""Names of the releases, as in the outbound log."""

SIZES, COLUMNS, COOCCURRENCE, STATISTICS, CHOICE, SCORES, UPLOADS = (
    "sizes",
    "columns",
    "cooccurrence",
    "statistics",
    "choice",
    "scores",
    "V",
)

SUPPORTS = "supports"
"""In an exact run: how many records have each component, in whatever task it is told."""

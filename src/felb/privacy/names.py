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

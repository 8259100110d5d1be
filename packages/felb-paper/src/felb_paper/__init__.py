"""What exists only to reproduce the paper: its data, experiments, claims, figures, and their commands."""

COMMANDS = {
    "data": ("list public data sets and load their raw files", "felb_paper.commands:data_command"),
    "experiment": ("run the experiments of the paper and show their results", "felb_paper.commands:experiment_command"),
}
"""The commands that this distribution adds to ``felb``."""

"""Everything that exists only to reproduce the paper: its data, experiments, claims, figures, and their commands."""

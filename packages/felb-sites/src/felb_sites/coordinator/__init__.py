"""The coordinator: its folder and members, and `felb run`, which plays an algorithm over the sites."""

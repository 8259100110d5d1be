"""Scores from counts that add across clients."""

"""Methods for centralized data, one algorithm per file."""

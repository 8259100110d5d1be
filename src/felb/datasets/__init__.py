"""Files, synthetic data, partitions."""

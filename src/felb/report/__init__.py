"""Pictures and tables of stored results."""

"""Plain records of what was found, written atomically, read back by anyone."""

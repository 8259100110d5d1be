"""The commands ``felb data`` and ``felb experiment``; the command line loads them by name."""

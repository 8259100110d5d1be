"""Where federations run."""

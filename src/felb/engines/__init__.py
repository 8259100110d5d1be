"""Where federations run: in this process, or over the sites of a NVIDIA FLARE federation."""

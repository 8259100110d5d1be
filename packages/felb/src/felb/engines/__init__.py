"""Engines that execute a federation: in this process, or over the sites of a NVIDIA FLARE federation."""

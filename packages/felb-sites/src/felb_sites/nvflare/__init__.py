"""An adapter for consortia that operate NVIDIA FLARE: its jobs carry the envelopes between couriers and the relay."""

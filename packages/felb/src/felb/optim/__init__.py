"""The parts of proximal optimisation, as free functions."""

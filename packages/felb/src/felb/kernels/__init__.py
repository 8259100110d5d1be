"""Passes over binary matrices, compiled or on packed bits; the only package that compiles."""

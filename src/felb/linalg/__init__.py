"""Binary matrices and the kernels on them; the only room that compiles or uses bit tricks."""

from felb.linalg.binary import BinaryMatrix

__all__ = ["BinaryMatrix"]

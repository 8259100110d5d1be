"""Privacy specification, mechanisms, accountant and outbound log."""

from felb.privacy.spec import Privacy

__all__ = ["Privacy"]

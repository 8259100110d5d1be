"""What leaves a client, and what it costs."""

from felb.privacy.spec import Privacy

__all__ = ["Privacy"]

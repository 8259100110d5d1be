"""What leaves a client, and what it costs."""

from felb.privacy.policy import Privacy

__all__ = ["Privacy"]

"""To be imported first: keeps pandas out, which scikit-learn loads where it is installed, and PyArrow with it.

They are not among felb's requirements and take 100 MB that would count as felb's.
"""

import sys

sys.modules["pandas"] = None  # type: ignore[assignment]

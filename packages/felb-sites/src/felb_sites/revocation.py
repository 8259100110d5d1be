"""The list of sites and keys that are accepted no more, signed by the authority; the server reads it while it runs."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from felb.errors import InputError
from felb.records import read_text, replacing

if TYPE_CHECKING:
    from pathlib import Path

REVOCATIONS = "revocations.json"


@dataclass(frozen=True, slots=True)
class Revocations:
    """Names and keys that are refused.

    Parameters
    ----------
    federation : for which federation the list holds
    number : grows with every change, so that an old list cannot take the place of a newer one
    names : sites that are refused whatever key they show
    keys : fingerprints that are refused whatever name they show
    issued : when it was signed
    """

    federation: str
    number: int = 0
    names: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    issued: str = ""

    def changed(self, *, names: set[str], keys: set[str]) -> Revocations:
        """Return the next list."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return Revocations(self.federation, self.number + 1, tuple(sorted(names)), tuple(sorted(keys)), now)

    def refuses(self, name: str | None, key: str | None) -> bool:
        """Whether a site of this name, or one that holds this key, is refused."""
        return name in self.names or key in self.keys

    def _signed_part(self) -> str:
        content = {
            "federation": self.federation,
            "number": self.number,
            "names": list(self.names),
            "keys": list(self.keys),
            "issued": self.issued,
        }
        return json.dumps({"felb": "revocations-1", **content}, sort_keys=True, separators=(",", ":"))

    def write(self, path: Path, key: Any) -> None:
        """Sign the list with the authority's private key and put it in its place."""
        text = self._signed_part()
        padding, algorithm = _scheme()
        signature = base64.b64encode(key.sign(text.encode(), padding, algorithm)).decode()
        with replacing(path) as partial:
            partial.write_text(json.dumps({"list": text, "signature": signature}, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path, root: bytes) -> Revocations:
        """Read a list whose signature is that of the root certificate (PEM); anything else is an error."""
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature

        try:
            outer = json.loads(read_text(path, advice="copy it again"))
            text = outer["list"]
            padding, algorithm = _scheme()
            authority: Any = x509.load_pem_x509_certificate(root).public_key()
            authority.verify(base64.b64decode(outer["signature"], validate=True), text.encode(), padding, algorithm)
            said = json.loads(text)
            found = cls(
                said["federation"], int(said["number"]), tuple(said["names"]), tuple(said["keys"]), said["issued"]
            )
            if found._signed_part() != text:
                raise ValueError("it holds more than a list of revocations")
        except InvalidSignature as error:
            raise InputError(
                f"{path} is not signed by the authority of this federation; sign the list again"
            ) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{path} is no list of revocations ({error}); copy it again from the authority") from error
        return found


def _scheme() -> tuple[Any, Any]:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    return padding.PSS(mgf=padding.MGF1(hashes.SHA256()), salt_length=padding.PSS.DIGEST_LENGTH), hashes.SHA256()

"""What the people of a site ask of its vault: show, approve, deny, confirm keys, budget, log, backup.

The vault answers these on its operator socket, which the courier cannot open. While no vault runs, a command does the
same on the store itself.
"""

from __future__ import annotations

import getpass
import json
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from felb.errors import FelbError, InputError
from felb.records import try_lock
from felb_sites import SHORT
from felb_sites.carrier import CONNECTED, CONNECTIONS
from felb_sites.keys.identity import fingerprint_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from felb_sites.vault.vault import Vault

OWN, CONFIRMED, NEW, CHANGED = "this site", "confirmed", "new", "KEY CHANGED"
VERBS = frozenset(
    {
        "pending", "show", "approve", "deny", "budget", "log", "refusals", "verify", "roster", "confirm", "status",
        "health", "backup", "purge", "leave",
    }
)  # fmt: skip
MOST_BYTES = 1 << 28
"""Of a reply: a long log."""
LOCK = "vault.lock"


class Verbs:
    """The verbs of an operator, done by a vault.

    Parameters
    ----------
    vault : which
    one_user : vault and courier run as one user
    """

    def __init__(self, vault: Vault, *, one_user: bool | None = None) -> None:
        self._vault, self._one_user = vault, one_user

    def pending(self) -> list[dict[str, Any]]:
        """Return the runs that wait for a decision, and those that were refused without one."""
        rows = self._vault.store.rows("select * from runs where status='waiting' and state='proposed' order by asked")
        return [
            {
                "run": row["run"],
                "digest": row["digest"],
                **_of_plan(row["plan"]),
                "asked": row["asked"],
                "code": row["code"],
                "reason": row["reason"],
            }
            for row in rows
        ]

    def show(self, run: str) -> dict[str, Any]:
        """Return what a run would take from this site: the verdict first, then what leaves, in words and numbers."""
        from dataclasses import asdict

        from felb_sites.vault.session import read_plan
        from felb_sites.vault.summary import in_words, leaving

        vault = self._vault
        row = vault.known(run)
        plan, verdict = read_plan(json.loads(row["plan"])), vault.judge(row)
        sums = "in the clear" if plan.roster is None else f"masked, roster {plan.roster[:SHORT]}"
        facts = {
            "run": run,
            "status": row["status"],
            "verdict": verdict.status if not verdict.reason else f"{verdict.status}: {verdict.reason}",
            "method": plan.method,
            "components": plan.n_components,
            "features": plan.n_features,
            "sites": ", ".join(json.loads(row["sites"])),
            "sums": sums,
            **({"users": "one user runs vault and courier"} if self._one_user else {}),
            **({"records": "a random half, drawn here (refit)"} if plan.resample else {}),
            **({"records": "none: synthetic rows (rehearsal)"} if plan.rehearsal else {}),
            **dict(plan.parameters),
        }
        return {
            "run": run,
            "digest": row["digest"],
            "status": row["status"],
            "verdict": verdict.status,
            "reason": verdict.reason,
            "plan": plan.to_json(),
            "sites": json.loads(row["sites"]),
            "facts": facts,
            "words": in_words(plan),
            "leaves": [asdict(line) for line in leaving(plan)],
            "sums": sums,
        }

    def approve(self, run: str, digest: str, by: str) -> dict[str, Any]:
        """Agree to a run as it was shown."""
        verdict = self._vault.approve(run, digest, by=by)
        return {"run": run, "status": verdict.status, "reason": verdict.reason}

    def deny(self, run: str, by: str) -> dict[str, Any]:
        """Refuse a run for good."""
        return {"run": run, "status": self._vault.deny(run, by=by).status}

    def budget(self) -> dict[str, Any]:
        """Return what each private run may cost, the totals of each kind of guarantee, and the limits."""
        rows = [dict(row) for row in self._vault.store.rows("select * from budget order by began")]
        totals: dict[tuple[str, str], dict[str, Any]] = {}
        for row in rows:
            kind = row["unit"], row["neighbours"]
            total = totals.setdefault(kind, {"unit": kind[0], "neighbours": kind[1], "epsilon": 0.0, "delta": 0.0})
            total["epsilon"] += row["epsilon"]
            total["delta"] += row["delta"]
        epsilon, delta = self._vault.config().policy.total_limits()
        limits = {"total_epsilon": epsilon, "total_delta": delta}
        return {"runs": {row.pop("run"): row for row in rows}, "totals": list(totals.values()), "limits": limits}

    def log(self, run: str | None = None) -> list[dict[str, Any]]:
        """Return the lines of the outbound log."""
        return self._vault.store.log_lines(run)

    def refusals(self, run: str | None = None) -> list[dict[str, Any]]:
        """Return what was refused, and why."""
        rows = self._vault.store.rows("select time, run, reason from refusals order by seq")
        return [dict(row) for row in rows if run is None or row["run"] == run]

    def verify(self) -> dict[str, Any]:
        """Return where the chained log ends; an error names the first wrong line."""
        head = self._vault.store.verify_log()
        return {"lines": head.lines, "hash": head.hash}

    def roster(self) -> dict[str, Any]:
        """Return the members with the fingerprints of their keys, and which of them are confirmed here."""
        vault = self._vault
        if vault.members is None:
            return {"digest": "", "number": 0, "sites": []}
        trusted = {row["name"]: row["sign"] for row in vault.store.rows("select name, sign from trusted")}

        def state(name: str, sign: bytes) -> str:
            if name == vault.name:
                return OWN
            known = trusted.get(name)
            return NEW if known is None else CONFIRMED if known == sign else CHANGED

        listed = vault.members.listed
        sites = [{"name": m.name, "fingerprint": m.fingerprint, "state": state(m.name, m.sign)} for m in listed.members]
        parts = [part for m in listed.members for part in (m.name.encode(), m.sign)]
        return {"digest": fingerprint_of(b"keys", *parts).hex(), "number": listed.number, "sites": sites}

    def confirm(self, digest: str, by: str) -> dict[str, Any]:
        """Confirm the keys of all members by the beginning of their digest, after comparing it by telephone."""
        known = self.roster()
        if len(digest) < SHORT or not known["digest"].startswith(digest.strip().lower()):
            raise InputError("the digest is not that of the members as they are now; see `felb site roster show`")
        names = [site["name"] for site in known["sites"] if site["state"] in (NEW, CHANGED)]
        self._vault.confirm(names, by=by)
        return {"digest": known["digest"], "confirmed": names}

    def status(self) -> dict[str, Any]:
        """Return where the site stands."""
        vault, (connection, since) = self._vault, self._vault.connection
        runs = vault.store.rows("select run, status, state, round, plan, code, reason from runs order by asked")
        head = vault.store.log_head()
        return {
            "site": vault.name,
            "fingerprint": vault.fingerprint,
            "connection": connection,
            "since": since,
            "member": vault.is_member,
            "members": 0 if vault.members is None else vault.members.listed.number,
            "one_user": self._one_user,
            "epoch": vault.store.epoch,
            "log": {"lines": head.lines, "hash": head.hash},
            "runs": [
                {
                    "run": row["run"],
                    "status": row["status"],
                    "state": row["state"],
                    "round": row["round"],
                    **_of_plan(row["plan"]),
                    "reason": row["reason"],
                }
                for row in runs
            ],
        }

    def health(self) -> dict[str, Any]:
        """Return whether the site works, and what does not."""
        vault, problems = self._vault, []
        if vault.connection[0] != CONNECTED:
            problems.append(CONNECTIONS.get(vault.connection[0], "the courier is not connected to the relay"))
        if vault.members is None:
            problems.append("no member list has come from the relay yet")
        elif not vault.is_member:
            problems.append("this site is not on the member list: it was revoked, or its key was replaced")
        try:
            vault.check_data()
        except FelbError as error:
            problems.append(str(error))
        return {"ok": not problems, "problems": problems, "time": time.time()}

    def backup(self, path: str) -> dict[str, Any]:
        """Write a copy of the store, and return the head of the log, to be kept elsewhere."""
        self._vault.store.backup(Path(path))
        return {"backup": path, **self.verify()}

    def purge(self, run: str) -> dict[str, Any]:
        """Forget what was computed in a run that is over; log, charges and decision stay."""
        row = self._vault.known(run)
        if row["state"] == "open" and row["status"] == "approved":
            raise InputError(f"run {run!r} is open; deny it first, or wait for its end")
        self._vault.purge(run)
        return {"run": run, "status": "purged"}

    def leave(self, by: str) -> dict[str, Any]:
        """Withdraw from all runs that are open; the coordinator is told."""
        rows = self._vault.store.rows("select run from runs where state in ('proposed', 'open') and status<>'denied'")
        for row in rows:
            self._vault.deny(row["run"], by=by)
        return {"withdrawn": [row["run"] for row in rows]}

    def handle(self, message: bytes) -> bytes:
        """Answer a message of the operator socket."""
        try:
            said = msgspec.json.decode(message, type=dict[str, Any])
            verb, values = said.pop("verb"), {name: value for name, value in said.items() if value is not None}
            if verb not in VERBS:
                raise InputError("there is no such verb")
            if not all(isinstance(value, str) for value in values.values()):
                raise TypeError
            return msgspec.json.encode({"value": getattr(self, verb)(**values)})
        except FelbError as error:
            return msgspec.json.encode({"error": str(error)})
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
            return msgspec.json.encode({"error": "a message of another form"})


class Operator:
    """Asks the vault of a site, or its store if no vault runs.

    Parameters
    ----------
    folder : of the vault
    """

    def __init__(self, folder: Path) -> None:
        self._folder = Path(folder)

    def __getattr__(self, verb: str) -> Any:
        """Return a function that asks a verb of `Verbs`."""
        if verb not in VERBS:
            raise AttributeError(verb)

        def ask(*values: Any, **named: Any) -> Any:
            import inspect

            bound = inspect.signature(getattr(Verbs, verb)).bind(None, *values, **named).arguments
            return self._ask(verb, {name: value for name, value in bound.items() if name != "self"})

        return ask

    def _ask(self, verb: str, values: dict[str, Any]) -> Any:
        from felb_sites.sockets import SocketClient

        lock = try_lock(self._folder / LOCK)
        if lock is not None:  # no vault runs
            with lock, open_vault(self._folder) as vault:
                return getattr(Verbs(vault), verb)(**values)
        with SocketClient(self._folder / "operator.sock", seconds=600) as client:
            reply = msgspec.json.decode(client.ask(msgspec.json.encode({"verb": verb, **values})), type=dict[str, Any])
        if "error" in reply:
            raise InputError(reply["error"])
        return reply["value"]

    def restore(self, path: str, *, head: str | None = None) -> dict[str, Any]:
        """Put a backup in the place of the store; runs that were open are over, and count with all they may cost.

        Parameters
        ----------
        path : of the backup
        head : the last hash of the log that is known from elsewhere, which the backup must hold
        """
        import os
        import shutil
        import sqlite3
        import tempfile

        from felb.records import sync_folder
        from felb_sites.vault.store import Store

        lock = try_lock(self._folder / LOCK)
        if lock is None:
            raise InputError("the site runs; stop it before its store is restored")
        with lock:
            if not Path(path).is_file():
                raise InputError(f"{path} does not exist")
            place = self._folder / "store.sqlite"
            known = None
            if place.is_file():
                with suppress(InputError, sqlite3.Error):  # it may be damaged
                    current = Store(self._folder)
                    known = current.log_head()
                    current.close()
            with tempfile.TemporaryDirectory(dir=self._folder, prefix="restored-") as aside:  # checked before it counts
                copy = Path(aside) / "store.sqlite"
                shutil.copyfile(path, copy)
                copy.chmod(0o600)
                store = Store(Path(aside))
                try:
                    found = store.verify_log()
                    hashes = {line["hash"] for line in store.log_lines()}
                    if head is not None and head not in hashes:
                        raise InputError("the backup does not hold the line of the log with that hash: it is older")
                    store.begin_epoch()
                finally:
                    store.close()  # writes its log of transactions into the file
                for leftover in ("store.sqlite-wal", "store.sqlite-shm"):
                    (self._folder / leftover).unlink(missing_ok=True)
                os.replace(copy, place)  # noqa: PTH105
            sync_folder(self._folder)
        lost = 0 if known is None else max(0, known.lines - found.lines)
        return {"restored": path, "lines": found.lines, "hash": found.hash, "lines of the log that are lost": lost}


def _of_plan(plan: str) -> dict[str, Any]:
    """Return what lists of runs show of a plan."""
    said = json.loads(plan)
    return {"method": said["method"], "rehearsal": said.get("rehearsal", False)}


@contextmanager
def open_vault(folder: Path) -> Iterator[Vault]:
    """Open the vault of a site without its process."""
    from felb_sites.vault.process import make_vault

    vault = make_vault(folder)
    try:
        yield vault
    finally:
        vault.close()


def current_user() -> str:
    """Return who decides, as the operating system knows them; the name is asserted, not authenticated."""
    return getpass.getuser()

"""A million random and mutated messages against a vault: it answers nothing but the approved run's first request.

python benchmarks/vault_fuzz.py [COUNT] [SEED]
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from felb.data.registry import load
from felb.engines.nvflare.approvals import Approvals, plan_digest
from felb.engines.nvflare.messages import vault_message, write_question, write_request
from felb.engines.nvflare.reasons import REASONS
from felb.engines.nvflare.run_plan import Plan
from felb.engines.nvflare.site_logs import read_outbound
from felb.engines.nvflare.site_policy import Policy, SiteConfig
from felb.engines.nvflare.vault import OK, Vault
from felb.engines.nvflare.vault_fuzzing import mutated_messages
from felb.federated.execution import Execution

PLAN = Plan("fuzzed", "felb-mu", 4, 17, {"max_iter": 3})


def main(count: int = 1_000_000, seed: int = 0) -> None:
    """Send messages and print what came back."""
    import scipy.sparse as sp

    with tempfile.TemporaryDirectory() as folder:
        data, state = Path(folder) / "data.npz", Path(folder) / "state"
        sp.save_npz(data, load("zoo").to_scipy(bool))
        config = SiteConfig(str(data), str(state), policy=Policy(require_privacy=False))
        vault = Vault("site", lambda: config)
        vault.handle(*vault_message(write_question(), PLAN.to_json()))
        Approvals(state).approve(PLAN.run_id, plan_digest(PLAN))
        request = Execution(PLAN.algorithm(), seed=PLAN.seed).request
        assert request is not None
        first = vault_message(write_request(request), PLAN.to_json())
        honest = [first, vault_message(write_question(), PLAN.to_json())]
        codes: Counter[str] = Counter()
        answers: set[bytes] = set()
        begun = time.perf_counter()
        for words, values in mutated_messages(random.Random(seed), honest, count):
            reply = vault.handle(words, values)
            codes[reply.code] += 1
            if reply.code == OK and reply.values:
                answers.add(reply.values)
            assert reply.code in (OK, *REASONS)
            assert reply.code == OK or not reply.values
        seconds = time.perf_counter() - begun
        assert len(answers) <= 1
        assert {line["round"] for line in read_outbound(state)} <= {0}
        vault.close()
    print(f"{count} messages in {seconds:.0f} s, {count / seconds:.0f} a second; distinct answers: {len(answers)}")
    for code, times in codes.most_common():
        print(f"  {code:10} {times}")


if __name__ == "__main__":
    main(*(int(word) for word in sys.argv[1:]))

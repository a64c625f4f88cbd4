"""docs/reliability.md shows the accounts of docs/reliability.json. That its tests exist, `test_documents.py` checks."""

import json
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
TEXT: Final = (ROOT / "docs" / "reliability.md").read_text()
ACCOUNTS: Final[list[dict[str, Any]]] = json.loads((ROOT / "docs" / "reliability.json").read_text())
HEAD: Final = (
    "| | date | minutes | acknowledged | done | failed | cancelled, skipped | lost | twice | again / leases lost "
    "| recovery p50 / p99 | faults |"
)


def row(account: dict[str, Any]) -> str:
    cells = (
        account["title"],
        account["date"][:10],
        f"{account['duration_s'] / 60:.0f}",
        f"{account['acknowledged']:,}",
        f"{account['done']:,}",
        f"{account['failed']:,}",
        f"{account['cancelled'] + account['skipped']:,}",
        _lost(account),
        str(account["accepted_twice"]),
        f"{account['executed_again']:,} / {account['lease_losses']:,}",
        f"{account['recovery_p50_s']:.1f} s / {account['recovery_p99_s']:.1f} s",
        str(sum(account["faults"].values())),
    )
    return "| " + " | ".join(cells) + " |"


def _lost(account: dict[str, Any]) -> str:
    undone = account["lost_in_rollback"]
    return f"{account['lost']}, and {undone} undone by failovers" if undone else str(account["lost"])


def table() -> str:
    rows = [HEAD, "|" + "---|" * (HEAD.count("|") - 1), *map(row, ACCOUNTS)]
    commands = [f"- {account['title']}: `{account['command']}`, {account['server']}" for account in ACCOUNTS]
    return "\n".join([*rows, "", *commands])


def test_the_accounts_match_the_data() -> None:
    shown = TEXT.partition("<!-- accounts: begin -->\n")[2].partition("\n<!-- accounts: end -->")[0]
    assert shown == table()
    assert ACCOUNTS
    for account in ACCOUNTS:
        assert (account["lost"], account["accepted_twice"], account["good"]) == (0, 0, True)
        assert account["executed_again"] <= account["lease_losses"]

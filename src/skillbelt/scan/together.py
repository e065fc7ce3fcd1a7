"""Judge what files of a skill do together: data that a script acts on, programs that others run."""

from __future__ import annotations

from collections.abc import Callable
from posixpath import basename

from skillbelt.scan.addresses import classify, is_known
from skillbelt.scan.data_values import judge_data_values, names_unknown_host
from skillbelt.scan.ledger import Ledger
from skillbelt.text import Lazy


def judge_together(ledger: Ledger, scripts: list[str], read: Callable[[str], str]) -> None:
    """Judge what was noted in single files by what the others do with it."""
    judge_data_values(ledger, scripts, read)
    _judge_automatic(ledger, scripts, read)
    for path, line, value in ledger.packed if ledger.publishes else ():
        ledger.path, ledger.first_line = path, 1
        ledger.find("secret-to-network", line, f"{value} in what is published", "ask")


# A request that takes something along, in any language.
_TAKES_ALONG = Lazy(
    r"(?i)\b(?:post|put|body|upload|data|sendbeacon|sendall|write|--data|-T|-F|-d|<)\b"
    r"[\s\S]{0,400}?https?://"
    r"|https?://[\s\S]{0,600}?\b(?:post|put|body|upload|data|sendbeacon|sendall|payload)\b"
)


def _judge_automatic(ledger: Ledger, scripts: list[str], read: Callable[[str], str]) -> None:
    """Note files that another program runs by itself and that send something."""
    if not ledger.automatic:
        return
    sent = {(one.path, one.host): one.line for one in ledger.sent.values() if not one.weaker}
    for host, (path, line) in ledger.used_hosts.items():
        if not is_known(host):
            sent.setdefault((path, host), line)
    found = {path for path, _ in sent}
    for path in scripts:
        if basename(path) in ledger.automatic and path not in found:
            text = read(path)
            host = names_unknown_host(text) if "://" in text else ""
            if host and _TAKES_ALONG.search(text):
                sent[path, host] = text.count("\n", 0, max(text.find(host), 0)) + 1
    for (path, host), line in sent.items():
        how = ledger.automatic.get(basename(path))
        if how is not None and path not in ("", "SKILL.md") and classify(host) != "own":
            ledger.path, ledger.first_line = path, 1
            ledger.find("data-to-unknown-host", line, f"{how} sends to {host}", "ask")

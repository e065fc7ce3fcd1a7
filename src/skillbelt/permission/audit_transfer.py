"""Move the audit log of a database into another one, record by record, with its hash chains."""

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from skillbelt.errors import ConfigError
from skillbelt.permission.audit_events import NONE, hash_of
from skillbelt.permission.postgres_audit import PostgresAuditLog
from skillbelt.store.postgres.origins import move_origins
from skillbelt.store.postgres.store import decode_text

if TYPE_CHECKING:
    import psycopg

    from skillbelt.store.postgres.database import Database

_PAGE = 500
_COLUMNS = 'chain, seq, time, type, session, skill, app, "user", record'
_INSERT = f"INSERT INTO skillbelt.audit ({_COLUMNS}) VALUES ({', '.join(['%s'] * 9)})"


class _ChainEnd(NamedTuple):
    """Number and hash of the last record of a chain, and of the last one that was deleted."""

    seq: int = 0
    hash: str = NONE
    gone: int = 0
    gone_hash: str = NONE


def move_records(source: "Database", target: "Database") -> dict[str, int]:
    """Move the audit log and the trusted origins, and return how many there are of each."""
    return {"audit": move_audit(source, target), "origins": move_origins(source, target)}


def move_audit(source: "Database", target: "Database") -> int:
    """Copy the records that are missing, and return how many there are.

    Both logs are verified, the source before and the target after. ConfigError when one of them is
    broken, or when the target has other records in a chain of the same machine.
    """
    records = _verify(source)
    wanted, there = _read_ends(source), _read_ends(target)
    for chain, end in wanted.items():
        _begin_chain(source, target, chain, (end, there.get(chain)))
    after = 0
    query = f"SELECT id, {_COLUMNS} FROM skillbelt.audit WHERE id > %s ORDER BY id LIMIT {_PAGE}"
    while rows := source.read(query, [after]):
        after = rows[-1][0]
        if not target.write(partial(_add_page, rows=[row[1:] for row in rows])):
            raise ConfigError(
                f"{target.place}: the audit log was changed meanwhile; end what uses either store"
            )
    _verify(target)
    found = _read_ends(target)
    for chain, end in wanted.items():
        if found.get(chain, _ChainEnd()).seq < end.seq:
            raise _refuse(target, chain, "is not complete after it was copied")
    return records


def _verify(database: "Database") -> int:
    found = PostgresAuditLog(database).verify()
    if found.broken:
        fault = found.faults[0]
        raise ConfigError(
            f"{database.place}: the audit log is broken: {fault.path} record {fault.line}:"
            f" {fault.message}; `skillbelt log --verify` shows all"
        )
    return found.records


def _read_ends(database: "Database") -> dict[str, _ChainEnd]:
    query = "SELECT chain, seq, hash, gone, gone_hash FROM skillbelt.audit_head"
    return {chain: _ChainEnd(*end) for chain, *end in database.read(query)}


def _begin_chain(
    source: "Database",
    target: "Database",
    chain: str,
    ends: tuple[_ChainEnd, _ChainEnd | None],
) -> None:
    """Make the chain there, or check that the source goes on where it ends."""
    wanted, there = ends
    if there is None:
        head = (chain, wanted.gone, wanted.gone_hash, wanted.gone, wanted.gone_hash)
        query = "INSERT INTO skillbelt.audit_head VALUES (%s, %s, %s, %s, %s)"
        target.write(lambda db: db.execute(query, head).rowcount)
        return
    query = "SELECT record FROM skillbelt.audit WHERE chain = %s AND seq = %s"
    known = {0: NONE, wanted.gone: wanted.gone_hash}
    for (record,) in source.read(query, [chain, there.seq]):
        known[there.seq] = hash_of(record.encode())
    # Each hash covers all records before it, so that one comparison is enough.
    if known.get(there.seq) != there.hash or there.seq < wanted.gone:
        raise _refuse(target, chain, "has other records there")


def _add_page(db: "psycopg.Connection[Any]", rows: list[tuple[Any, ...]]) -> bool:
    """Add the records that are missing; False, and no change, when one does not follow."""
    chains = sorted({row[0] for row in rows})
    query = "SELECT chain, seq FROM skillbelt.audit_head WHERE chain = ANY(%s) FOR UPDATE"
    ends = dict(db.execute(query, [chains]).fetchall())
    missing, heads = list[tuple[Any, ...]](), dict[str, tuple[int, str]]()
    for row in rows:
        chain, seq, record = row[0], row[1], row[-1]
        if chain not in ends or seq > ends[chain] + 1:
            return False
        if seq == ends[chain] + 1:
            missing.append(row)
            ends[chain], heads[chain] = seq, (seq, hash_of(record.encode()))
    with db.cursor() as cursor:
        cursor.executemany(_INSERT, missing)
        query = "UPDATE skillbelt.audit_head SET seq = %s, hash = %s WHERE chain = %s"
        cursor.executemany(query, [(*head, chain) for chain, head in heads.items()])
    return True


def _refuse(target: "Database", chain: str, reason: str) -> ConfigError:
    return ConfigError(
        f"{target.place}: the audit log of {decode_text(chain)!r} {reason}; nothing of it was"
        " overwritten: begin with a database that this machine has not used yet"
    )

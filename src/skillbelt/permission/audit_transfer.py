"""Move an audit log into a database, record by record, with its hash chains."""

import itertools
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from skillbelt.errors import ConfigError
from skillbelt.permission.audit import AuditLog, machine_name, read_head, read_records
from skillbelt.permission.audit_events import NONE, Verified, decode_event, hash_of
from skillbelt.permission.postgres_audit import PostgresAuditLog, columns_of
from skillbelt.store.postgres.origins import move_origins
from skillbelt.store.postgres.store import decode_text, encode_text

if TYPE_CHECKING:
    import psycopg

    from skillbelt.store.postgres.database import Database

_PAGE = 500
_COLUMNS = 'chain, seq, time, type, session, skill, app, "user", record'
_INSERT = f"INSERT INTO skillbelt.audit ({_COLUMNS}) VALUES ({', '.join(['%s'] * 9)})"


class _ChainEnd(NamedTuple):
    """Number and hash of the last record of a chain, and of the last deleted one."""

    seq: int = 0
    hash: str = NONE
    gone: int = 0
    gone_hash: str = NONE


def move_records(source: "Database", target: "Database") -> dict[str, int]:
    """Move the audit log and the trusted origins; return how many of each the target has."""
    return {"audit": move_audit(source, target), "origins": move_origins(source, target)}


def move_audit(source: "Database", target: "Database") -> int:
    """Copy the missing records; return how many there are.

    Both logs are verified, the source before and the target after. ConfigError when one is broken,
    or when the target has other records in a chain of the same machine.
    """
    records = _verify(source)
    wanted, there = _read_ends(source), _read_ends(target)
    for chain, end in wanted.items():
        last = there.get(chain, _ChainEnd()).seq
        query = "SELECT record FROM skillbelt.audit WHERE chain = %s AND seq = %s"
        known = [hash_of(record.encode()) for (record,) in source.read(query, [chain, last])]
        _begin_chain(target, chain, (end, there.get(chain)), known)
    after = 0
    query = f"SELECT id, {_COLUMNS} FROM skillbelt.audit WHERE id > %s ORDER BY id LIMIT {_PAGE}"
    while rows := source.read(query, [after]):
        after = rows[-1][0]
        _add_rows(target, [row[1:] for row in rows])
    _check_ends(target, wanted)
    return records


def move_files(log: AuditLog, target: "Database") -> int:
    """Copy the missing records of a log in files; return how many there are.

    They form a separate chain, named by this machine and the folder. Errors as of `move_audit`.
    """
    place = log.folder
    checked = _require_whole(log.verify(), place)
    found = read_head(log.head_path)
    if found is None or not checked.records:
        return 0
    chain = encode_text(f"{machine_name()} {place}")
    wanted = _ChainEnd(found.seq, found.hash, found.gone, found.gone_hash)
    there = _read_ends(target).get(chain)
    last = there.seq if there else 0
    with closing(read_records(log)) as records:
        known = [hash_of(record) for seq, record in records if seq == last]
    _begin_chain(target, chain, (wanted, there), known)
    with closing(read_records(log)) as records:
        missing = ((seq, record) for seq, record in records if seq > last)
        while page := list(itertools.islice(missing, _PAGE)):
            _add_rows(target, [_row_of(chain, seq, record, place) for seq, record in page])
    _check_ends(target, {chain: wanted})
    return checked.records


def _row_of(chain: str, seq: int, record: bytes, place: str) -> tuple[Any, ...]:
    event = decode_event(record)
    if event is None:
        raise ConfigError(
            f"{place}: record {seq} of the audit log is not an event; nothing of it moved"
        )
    return (chain, seq, *columns_of(event), record.decode("utf-8"))


def _add_rows(target: "Database", rows: list[tuple[Any, ...]]) -> None:
    if not target.write(partial(_add_page, rows=rows)):
        raise ConfigError(
            f"{target.place}: the audit log changed meanwhile; stop all users of both stores"
        )


def _check_ends(target: "Database", wanted: dict[str, _ChainEnd]) -> None:
    """Verify the moved records."""
    _verify(target)
    found = _read_ends(target)
    for chain, end in wanted.items():
        if found.get(chain, _ChainEnd()).seq < end.seq:
            raise _refuse(target, chain, "is not complete after it was copied")


def _verify(database: "Database") -> int:
    return _require_whole(PostgresAuditLog(database).verify(), database.place).records


def _require_whole(found: Verified, place: str) -> Verified:
    if found.broken:
        fault = found.faults[0]
        raise ConfigError(
            f"{place}: the audit log is broken: {fault.path} record {fault.line}:"
            f" {fault.message}; `skillbelt log --verify` shows all"
        )
    return found


def _read_ends(database: "Database") -> dict[str, _ChainEnd]:
    query = "SELECT chain, seq, hash, gone, gone_hash FROM skillbelt.audit_head"
    return {chain: _ChainEnd(*end) for chain, *end in database.read(query)}


def _begin_chain(
    target: "Database",
    chain: str,
    ends: tuple[_ChainEnd, _ChainEnd | None],
    hashes: Iterable[str],
) -> None:
    """Create the chain in the target, or check that the source continues it.

    `hashes` gives the source's hash of the record that is last in the target.
    """
    wanted, there = ends
    if there is None:
        head = (chain, wanted.gone, wanted.gone_hash, wanted.gone, wanted.gone_hash)
        query = "INSERT INTO skillbelt.audit_head VALUES (%s, %s, %s, %s, %s)"
        target.write(lambda db: db.execute(query, head).rowcount)
        return
    known = {0: NONE, wanted.gone: wanted.gone_hash}
    known.update((there.seq, one) for one in hashes)
    # Each hash covers all records before it, so that one comparison is enough.
    if known.get(there.seq) != there.hash or there.seq < wanted.gone:
        raise _refuse(target, chain, "has other records there")


def _add_page(db: "psycopg.Connection[Any]", rows: list[tuple[Any, ...]]) -> bool:
    """Add the missing records; False, and no change, when one does not follow the last."""
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

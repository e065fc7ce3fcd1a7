"""The tables in PostgreSQL, and the migrations from older schemas.

Everything is in the schema `skillbelt` of the database that the URL names. `encode_text` encodes
texts that PostgreSQL cannot hold; everything else can be read with psql.
"""

from typing import Any

from psycopg import Connection

from skillbelt.errors import ConfigError
from skillbelt.store.postgres.shared_tables import SHARED_TABLES

# "SkBt", the same number that marks our SQLite files.
MIGRATION_LOCK = 0x536B4274

# Each of our transactions names its tenant: "=" and the name, or nothing, which matches no row.
_APP = "app = substr(nullif(current_setting('skillbelt.app', true), ''), 2)"
_USER = "\"user\" = substr(nullif(current_setting('skillbelt.user', true), ''), 2)"
_APPEND = """
CREATE FUNCTION skillbelt.append_1(
    _once uuid, _again boolean, _digest bytea, _app text, _user text, _name text,
    _types text[], _agents text[], _data text[],
    _owners bytea[], _users text[], _marks bytea[], _keys text[], _values text[]
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    _session bigint;
    _last bigint;
    _count integer := cardinality(_types);
    _result text;
    -- One clock for all machines: that of the server.
    _now float8 := extract(epoch FROM clock_timestamp());
BEGIN
    IF _again THEN
        SELECT result INTO _result FROM skillbelt.applied WHERE id = _once;
        IF FOUND THEN
            RETURN _result;
        END IF;
    END IF;
    PERFORM set_config('skillbelt.app', '=' || _app, true),
        set_config('skillbelt.user', '=' || _user, true);
    INSERT INTO skillbelt.session AS s (digest, app, "user", name, created, updated, last)
        VALUES (_digest, _app, _user, _name, _now, _now, _count)
        ON CONFLICT (digest) DO UPDATE
        SET updated = greatest(s.updated, excluded.updated), last = s.last + _count
        RETURNING s.id, s.last INTO _session, _last;
    IF _count > 0 THEN
        INSERT INTO skillbelt.event (session, seq, time, type, agent, data)
            SELECT _session, _last - _count + n, _now, t, a, d
            FROM unnest(_types, _agents, _data) WITH ORDINALITY AS given (t, a, d, n);
    END IF;
    FOR i IN 1 .. cardinality(_keys) LOOP
        IF _values[i] IS NULL THEN
            DELETE FROM skillbelt.state WHERE owner = _owners[i] AND mark = _marks[i];
        ELSE
            INSERT INTO skillbelt.state AS s (owner, mark, app, "user", key, value)
                VALUES (_owners[i], _marks[i], _app, _users[i], _keys[i], _values[i])
                ON CONFLICT (owner, mark) DO UPDATE SET value = excluded.value;
        END IF;
    END LOOP;
    _result := (_last - _count) || ' ' || _now;
    INSERT INTO skillbelt.applied (id, result) VALUES (_once, _result);
    RETURN _result;
END
$$
"""
# Like append_1, but for a turn: refused when another lease holds the session. The row stays locked
# until the end, so that no other turn takes the session between the check and the change.
_APPEND_LEASED = """
CREATE FUNCTION skillbelt.append_2(
    _lease text,
    _once uuid, _again boolean, _digest bytea, _app text, _user text, _name text,
    _types text[], _agents text[], _data text[],
    _owners bytea[], _users text[], _marks bytea[], _keys text[], _values text[]
) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (_again AND EXISTS (SELECT FROM skillbelt.applied WHERE id = _once)) THEN
        PERFORM set_config('skillbelt.app', '=' || _app, true),
            set_config('skillbelt.user', '=' || _user, true);
        PERFORM FROM skillbelt.lease WHERE digest = _digest AND number = _lease FOR SHARE;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
    END IF;
    RETURN skillbelt.append_1(
        _once, _again, _digest, _app, _user, _name, _types, _agents, _data,
        _owners, _users, _marks, _keys, _values
    );
END
$$
"""
# The n-th entry brings a schema of version n to version n + 1. An entry is never changed after a
# release, only added.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # Changes that were made, so that a change whose answer was lost is not made again.
        "CREATE TABLE skillbelt.applied (id uuid PRIMARY KEY,"
        " made timestamptz NOT NULL DEFAULT now(), result text NOT NULL)",
        "CREATE INDEX applied_made ON skillbelt.applied (made)",
        # An index holds no long text: sessions are found by a digest of their key. The index that
        # lists them in order leaves out the few sessions with long keys, which have an index of
        # their own.
        "CREATE TABLE skillbelt.session (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
        " digest bytea NOT NULL UNIQUE,"
        ' app text COLLATE "C" NOT NULL, "user" text COLLATE "C" NOT NULL,'
        ' name text COLLATE "C" NOT NULL,'
        " created float8 NOT NULL, updated float8 NOT NULL, last bigint NOT NULL,"
        " long boolean GENERATED ALWAYS AS"
        ' (octet_length(app) + octet_length("user") + octet_length(name) > 2000) STORED)',
        'CREATE INDEX session_key ON skillbelt.session (app, "user", name) WHERE NOT long',
        "CREATE INDEX session_long ON skillbelt.session (id) WHERE long",
        "CREATE INDEX session_updated ON skillbelt.session (updated)",
        "CREATE TABLE skillbelt.event (session bigint, seq bigint, time float8 NOT NULL,"
        " type text NOT NULL, agent text NOT NULL, data text NOT NULL, PRIMARY KEY (session, seq))",
        "CREATE TABLE skillbelt.state (owner bytea, mark bytea, app text NOT NULL,"
        ' "user" text, key text NOT NULL, value text NOT NULL, PRIMARY KEY (owner, mark))',
        _APPEND,
        # Row-level security binds every role but the owner of the tables.
        "ALTER TABLE skillbelt.session ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY tenant ON skillbelt.session USING ({_APP} AND {_USER})",
        "ALTER TABLE skillbelt.state ENABLE ROW LEVEL SECURITY",
        f'CREATE POLICY tenant ON skillbelt.state USING ({_APP} AND ("user" IS NULL OR {_USER}))',
        "ALTER TABLE skillbelt.event ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY tenant ON skillbelt.event USING"
        " (EXISTS (SELECT FROM skillbelt.session WHERE id = event.session))",
    ),
    (
        *SHARED_TABLES,
        f"CREATE POLICY tenant ON skillbelt.audit FOR SELECT USING ({_APP} AND {_USER})",
    ),
    (
        # The lease of each session; the row of a turn that crashed stays until it is expired.
        "CREATE TABLE skillbelt.lease (digest bytea PRIMARY KEY, app text NOT NULL,"
        ' "user" text NOT NULL, number text NOT NULL, holder text NOT NULL, until float8 NOT NULL)',
        "ALTER TABLE skillbelt.lease ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY tenant ON skillbelt.lease USING ({_APP} AND {_USER})",
        _APPEND_LEASED,
    ),
)


def read_version(db: Connection[Any]) -> int:
    """Return the version of the schema; 0 where there is none."""
    found = db.execute("SELECT to_regclass('skillbelt.version') IS NOT NULL").fetchone()
    if not (found and found[0]):
        return 0
    row = db.execute("SELECT number FROM skillbelt.version").fetchone()
    return int(row[0]) if row else 0


def migrate(db: Connection[Any], place: str) -> None:
    """Bring the schema to the version of this product; ConfigError for a newer one.

    Of many processes that start at once, one does it and the others wait for it.
    """
    if _is_current(db, place):
        return
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
        if _is_current(db, place):
            return
        db.execute("CREATE SCHEMA IF NOT EXISTS skillbelt")
        db.execute("CREATE TABLE IF NOT EXISTS skillbelt.version (number integer NOT NULL)")
        for statements in MIGRATIONS[read_version(db) :]:
            for statement in statements:
                db.execute(statement)
        db.execute("DELETE FROM skillbelt.version")
        db.execute("INSERT INTO skillbelt.version VALUES (%s)", [len(MIGRATIONS)])


def _is_current(db: Connection[Any], place: str) -> bool:
    number = read_version(db)
    if number > len(MIGRATIONS):
        raise ConfigError(
            f"{place}: was made by a newer skillbelt (schema {number}, this one knows "
            f"{len(MIGRATIONS)}); upgrade skillbelt here, or set store to another database"
        )
    return number == len(MIGRATIONS)

"""Tables beside the sessions: the audit log and the trusted origins of all machines.

`skillbelt.permission.postgres_audit` and `skillbelt.store.postgres.origins` use them.
"""

# A chain of records for each machine, so that machines do not wait for each other. The function
# has the rights of its owner: a role that may call it, and may not write the tables, can add
# records and change none.
_AUDIT_APPEND = """
CREATE FUNCTION skillbelt.audit_append_1(
    _once uuid, _again boolean, _chain text, _lines text[], _times float8[],
    _types text[], _sessions text[], _skills text[], _apps text[], _users text[]
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    _seq bigint;
    _hash text;
    _record text;
BEGIN
    IF _again AND EXISTS (SELECT FROM skillbelt.applied WHERE id = _once) THEN
        RETURN;
    END IF;
    SELECT seq, hash INTO _seq, _hash FROM skillbelt.audit_head WHERE chain = _chain FOR UPDATE;
    IF NOT FOUND THEN
        INSERT INTO skillbelt.audit_head (chain) VALUES (_chain) ON CONFLICT DO NOTHING;
        SELECT seq, hash INTO _seq, _hash FROM skillbelt.audit_head WHERE chain = _chain FOR UPDATE;
    END IF;
    FOR i IN 1 .. cardinality(_lines) LOOP
        _seq := _seq + 1;
        _record := '{"seq":' || _seq || ',"prev":"' || _hash || '",' || substr(_lines[i], 2);
        INSERT INTO skillbelt.audit (chain, seq, time, type, session, skill, app, "user", record)
            VALUES (_chain, _seq, _times[i], _types[i], _sessions[i], _skills[i],
                    _apps[i], _users[i], _record);
        _hash := encode(sha256(convert_to(_record, 'UTF8')), 'hex');
    END LOOP;
    UPDATE skillbelt.audit_head SET seq = _seq, hash = _hash WHERE chain = _chain;
    INSERT INTO skillbelt.applied (id, result) VALUES (_once, '');
END
$$
"""
_AUDIT_KEEP = """
CREATE FUNCTION skillbelt.audit_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('skillbelt.audit_expire', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'the audit log only grows' USING ERRCODE = 'insufficient_privilege';
END
$$
"""
_NONE = "0" * 64
SHARED_TABLES: tuple[str, ...] = (
    "CREATE TABLE skillbelt.audit_head (chain text PRIMARY KEY, seq bigint NOT NULL DEFAULT 0,"
    f" hash text NOT NULL DEFAULT '{_NONE}', gone bigint NOT NULL DEFAULT 0,"
    f" gone_hash text NOT NULL DEFAULT '{_NONE}') WITH (fillfactor = 50)",
    "CREATE TABLE skillbelt.audit (id bigint GENERATED ALWAYS AS IDENTITY UNIQUE,"
    " chain text NOT NULL, seq bigint NOT NULL, time float8 NOT NULL, type text NOT NULL,"
    ' session text NOT NULL, skill text NOT NULL, app text, "user" text,'
    " record text NOT NULL, PRIMARY KEY (chain, seq))",
    # An index holds no long text.
    "CREATE INDEX audit_session ON skillbelt.audit (md5(session), id)",
    'CREATE INDEX audit_tenant ON skillbelt.audit (md5(app), md5("user"), id)',
    "CREATE INDEX audit_time ON skillbelt.audit (time)",
    _AUDIT_APPEND,
    "REVOKE ALL ON FUNCTION skillbelt.audit_append_1 FROM PUBLIC",
    _AUDIT_KEEP,
    "CREATE TRIGGER keep BEFORE UPDATE OR DELETE ON skillbelt.audit"
    " FOR EACH ROW EXECUTE FUNCTION skillbelt.audit_keep()",
    "CREATE TRIGGER keep_all BEFORE TRUNCATE ON skillbelt.audit"
    " FOR EACH STATEMENT EXECUTE FUNCTION skillbelt.audit_keep()",
    "CREATE TRIGGER keep BEFORE DELETE ON skillbelt.audit_head"
    " FOR EACH ROW EXECUTE FUNCTION skillbelt.audit_keep()",
    "CREATE TRIGGER keep_all BEFORE TRUNCATE ON skillbelt.audit_head"
    " FOR EACH STATEMENT EXECUTE FUNCTION skillbelt.audit_keep()",
    "ALTER TABLE skillbelt.audit ENABLE ROW LEVEL SECURITY",
    "CREATE TABLE skillbelt.trust (mark bytea PRIMARY KEY, url text NOT NULL,"
    " time float8 NOT NULL, added_by text NOT NULL)",
)

-- Plain INSERTs wake an idle relay, too. Once a statement, and only while a relay has said that it is idle.
CREATE OR REPLACE FUNCTION {outbox_call}() RETURNS trigger LANGUAGE plpgsql AS $call$
BEGIN
    PERFORM pg_notify({channel}, '') FROM {outbox_wake} WHERE idle;
    RETURN NULL;
END
$call$;
CREATE TRIGGER {name:outbox_call} AFTER INSERT ON {outbox} FOR EACH STATEMENT EXECUTE FUNCTION {outbox_call}();

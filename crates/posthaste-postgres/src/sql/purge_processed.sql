-- Deletes old processed rows along the primary key, of at most $3 rows looked at behind $1. Rows that somebody has
-- locked are left for the next time.
WITH looked AS MATERIALIZED (
    SELECT id, status, processed_at FROM {outbox} WHERE id > $1 ORDER BY id LIMIT $3
), old AS MATERIALIZED (
    SELECT t.id FROM (
        SELECT id FROM looked WHERE status = 1 AND processed_at < now() - $2 * interval '1 microsecond'
        ORDER BY id LIMIT $4
    ) l JOIN {outbox} t ON t.id = ANY (ARRAY[l.id]) AND t.status = 1
    FOR UPDATE OF t SKIP LOCKED
), gone AS (
    DELETE FROM {outbox} t USING old WHERE t.id = ANY (ARRAY[old.id]) RETURNING 1
)
SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM looked) AS looked,
       (SELECT id FROM looked ORDER BY id DESC LIMIT 1) AS last

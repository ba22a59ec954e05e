-- Deletes dead rows, as redrive.sql mends them: $3 only those given up so many microseconds ago.
WITH lane AS MATERIALIZED (
    SELECT lane FROM {outbox_lane} WHERE lane = ANY ($2) ORDER BY lane FOR NO KEY UPDATE
), picked AS MATERIALIZED (
    SELECT t.id, t.lane, t.next_attempt_at IS NOT NULL AND t.aggregate_id <> '' AS parks
    FROM {outbox} t
    WHERE t.id = ANY ($1) AND t.status = -1 AND (SELECT count(*) FROM lane) >= 0
      AND ($3 IS NULL OR t.processed_at < now() - $3 * interval '1 microsecond')
    ORDER BY t.id FOR UPDATE OF t
), mended AS (
    DELETE FROM {outbox} t USING picked p WHERE t.id = ANY (ARRAY[p.id])
    RETURNING p.lane, p.parks
), moved_on AS (
    UPDATE {outbox_lane} l SET revision = l.revision + 1
    WHERE l.lane IN (SELECT lane FROM mended WHERE parks)
)
SELECT count(*) AS mended, (SELECT count(pg_notify({channel}, '')) FROM {outbox_wake} WHERE idle) AS calls FROM mended

-- Makes dead rows pending again. Their lanes are locked first and in order, as a settle locks them, and their revision
-- is moved on in the same transaction: the rows come back behind where the relay has read to. Rows that somebody else
-- mended in the meantime are not dead any more and are left alone.
WITH lane AS MATERIALIZED (
    SELECT lane FROM {outbox_lane} WHERE lane = ANY ($2) ORDER BY lane FOR NO KEY UPDATE
), picked AS MATERIALIZED (
    SELECT t.id, t.lane FROM {outbox} t
    WHERE t.id = ANY ($1) AND t.status = -1 AND (SELECT count(*) FROM lane) >= 0
    ORDER BY t.id FOR UPDATE OF t
), mended AS (
    UPDATE {outbox} t SET status = 0, attempts = 0, next_attempt_at = NULL, processed_at = NULL
    FROM picked p WHERE t.id = ANY (ARRAY[p.id])
    RETURNING p.lane
), moved_on AS (
    UPDATE {outbox_lane} l SET revision = l.revision + 1
    WHERE l.lane IN (SELECT lane FROM mended)
)
SELECT count(*) AS mended, (SELECT count(pg_notify({channel}, '')) FROM {outbox_wake} WHERE idle) AS calls FROM mended

-- As settle.sql, but deletes what was processed.
WITH fence AS MATERIALIZED (
    SELECT l.lane, l.token FROM {outbox_lane} l
    WHERE l.lane = ANY ($2) AND l.owner = $1
      AND ((l.lane, l.token) IN (SELECT * FROM unnest($2, $3))) IS TRUE
    ORDER BY l.lane FOR SHARE
), outcome AS MATERIALIZED (
    SELECT o.* FROM unnest($4, $5, $6, $7, $8, $9, $10, $11)
        AS o(id, seq, lane, token, outcome, wait, attempts, error)
    WHERE ((o.lane, o.token) IN (SELECT lane, token FROM fence)) IS TRUE
), deleted AS (
    DELETE FROM {outbox} t USING outcome o
    WHERE o.outcome = 1 AND t.id = ANY (ARRAY[o.id]) AND t.seq = o.seq AND t.lane = o.lane AND t.status = 0
    RETURNING 1
), settled AS (
    UPDATE {outbox} t SET
        status = CASE o.outcome WHEN 3 THEN -1 WHEN 4 THEN -1 ELSE 0 END,
        attempts = o.attempts,
        last_error = CASE WHEN o.outcome IN (2, 3, 4) THEN o.error ELSE t.last_error END,
        next_attempt_at = CASE o.outcome WHEN 2 THEN now() + o.wait * interval '1 microsecond' WHEN 4 THEN now()
                          WHEN 5 THEN t.next_attempt_at END,
        processed_at = CASE WHEN o.outcome IN (3, 4) THEN now() END
    FROM outcome o
    WHERE o.outcome <> 1 AND t.id = ANY (ARRAY[o.id]) AND t.seq = o.seq AND t.lane = o.lane AND t.status = 0
    RETURNING 1
)
SELECT (SELECT count(*) FROM deleted) + (SELECT count(*) FROM settled) AS applied,
       (SELECT array_agg(lane) FROM fence) AS lanes, (SELECT array_agg(token) FROM fence) AS tokens

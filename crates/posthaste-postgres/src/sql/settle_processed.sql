-- As settle.sql, where all records of the batch were processed, which is nearly always so.
WITH fence AS MATERIALIZED (
    SELECT l.lane, l.token FROM {outbox_lane} l
    WHERE l.lane = ANY ($2) AND l.owner = $1
      AND ((l.lane, l.token) IN (SELECT * FROM unnest($2, $3))) IS TRUE
    ORDER BY l.lane FOR SHARE
), outcome AS MATERIALIZED (
    SELECT o.* FROM unnest($4, $5, $6, $7) AS o(id, seq, lane, token)
    WHERE ((o.lane, o.token) IN (SELECT lane, token FROM fence)) IS TRUE
), settled AS (
    UPDATE {outbox} t SET status = 1, next_attempt_at = NULL, processed_at = now()
    FROM outcome o
    WHERE t.id = ANY (ARRAY[o.id]) AND t.seq = o.seq AND t.lane = o.lane AND t.status = 0
    RETURNING 1
)
SELECT (SELECT count(*) FROM settled) AS applied, (SELECT array_agg(lane) FROM fence) AS lanes,
       (SELECT array_agg(token) FROM fence) AS tokens

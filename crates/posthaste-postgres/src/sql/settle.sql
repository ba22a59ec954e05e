-- Writes down what became of a batch of records: one statement and so one round trip.
--
-- Each row is looked up by its id, whatever the statistics say: written as = ANY (ARRAY[…]) the condition is good for an
-- index and for no merge join, so no index is scanned as a whole. A table that was analysed when it held nothing but dead
-- rows looks empty to the planner however much it grows, and an ordinary join would go through all of it for each outcome.
--
-- The lanes are locked in order (FOR SHARE): as long as this transaction lasts, nobody can take them over, and where
-- the token is another one, nothing is written. The arrays come in order of id, and with joins other than nested loops
-- switched off the rows are touched in that order, by primary key. IS TRUE keeps the look into the fence a hash lookup: as
-- a join it would be a nested loop as well, over all pairs of lanes and records.
--
-- $1 the relay; $2, $3 lanes and tokens; $4..$7 ids, positions, lanes and tokens of the records; $8 outcomes (1
-- processed, 2 retry, 3 dead, 4 dead and parking its key, 5 released); $9 microseconds to wait; $10 attempts; $11
-- errors.
WITH fence AS MATERIALIZED (
    SELECT l.lane, l.token FROM {outbox_lane} l
    WHERE l.lane = ANY ($2) AND l.owner = $1
      AND ((l.lane, l.token) IN (SELECT * FROM unnest($2, $3))) IS TRUE
    ORDER BY l.lane FOR SHARE
), outcome AS MATERIALIZED (
    SELECT o.* FROM unnest($4, $5, $6, $7, $8, $9, $10, $11)
        AS o(id, seq, lane, token, outcome, wait, attempts, error)
    WHERE ((o.lane, o.token) IN (SELECT lane, token FROM fence)) IS TRUE
), settled AS (
    UPDATE {outbox} t SET
        status = CASE o.outcome WHEN 1 THEN 1 WHEN 3 THEN -1 WHEN 4 THEN -1 ELSE 0 END,
        attempts = CASE o.outcome WHEN 1 THEN t.attempts ELSE o.attempts END,
        last_error = CASE WHEN o.outcome IN (2, 3, 4) THEN o.error ELSE t.last_error END,
        next_attempt_at = CASE o.outcome WHEN 2 THEN now() + o.wait * interval '1 microsecond' WHEN 4 THEN now()
                          WHEN 5 THEN t.next_attempt_at END,
        processed_at = CASE WHEN o.outcome IN (1, 3, 4) THEN now() END
    FROM outcome o
    WHERE t.id = ANY (ARRAY[o.id]) AND t.seq = o.seq AND t.lane = o.lane AND t.status = 0
    RETURNING 1
)
SELECT (SELECT count(*) FROM settled) AS applied, (SELECT array_agg(lane) FROM fence) AS lanes,
       (SELECT array_agg(token) FROM fence) AS tokens

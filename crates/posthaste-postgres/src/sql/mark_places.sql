-- Marks records as processed that lie where they were read: by their place (ctid) in the table, without an index, which is
-- a quarter cheaper than by id. settle.sql does the rest.
--
-- A place is a hint: a row that was written to since lies elsewhere, and another one may lie there. So each row is proved by
-- its id: of a batch, any row that is found is one to settle. IS TRUE keeps that a hash lookup. It is all or nothing: if a
-- single lane is not ours any more, nothing is written.
--
-- $1 the relay; $2, $3 lanes and tokens; $4, $5 ids and places of the records. If some were not found, it answers with
-- the ids of the others.
WITH fence AS MATERIALIZED (
    SELECT l.lane, l.token FROM {outbox_lane} l
    WHERE l.lane = ANY ($2) AND l.owner = $1
      AND ((l.lane, l.token) IN (SELECT * FROM unnest($2, $3))) IS TRUE
    ORDER BY l.lane FOR SHARE
), settled AS (
    UPDATE {outbox} t SET status = 1, next_attempt_at = NULL, processed_at = now()
    WHERE (SELECT count(*) FROM fence) = cardinality($2)
      AND t.ctid = ANY ($5) AND (t.id IN (SELECT unnest($4))) IS TRUE AND t.status = 0
    RETURNING t.id
)
SELECT (SELECT count(*) FROM settled) AS applied,
       CASE WHEN (SELECT count(*) FROM settled) < cardinality($4) THEN (SELECT array_agg(id) FROM settled) END AS done

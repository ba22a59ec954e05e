-- As mark_places.sql, but deletes what was processed.
WITH fence AS MATERIALIZED (
    SELECT l.lane, l.token FROM {outbox_lane} l
    WHERE l.lane = ANY ($2) AND l.owner = $1
      AND ((l.lane, l.token) IN (SELECT * FROM unnest($2, $3))) IS TRUE
    ORDER BY l.lane FOR SHARE
), settled AS (
    DELETE FROM {outbox} t
    WHERE (SELECT count(*) FROM fence) = cardinality($2)
      AND t.ctid = ANY ($5) AND (t.id IN (SELECT unnest($4))) IS TRUE AND t.status = 0
    RETURNING t.id
)
SELECT (SELECT count(*) FROM settled) AS applied,
       CASE WHEN (SELECT count(*) FROM settled) < cardinality($4) THEN (SELECT array_agg(id) FROM settled) END AS done

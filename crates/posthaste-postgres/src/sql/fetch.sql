-- Reads the next records of some lanes: one statement, and so one snapshot and one round trip.
--
-- It walks the ready index lane by lane and streams what it finds: the LATERAL subquery has a LIMIT of its own, so the
-- only plan is a nested loop that pulls row by row, in order, and the outer LIMIT ends it. Every row that was looked at
-- comes back, those passed over with nothing but their place: the reader counts, so that no window function is needed
-- (they took three times as long as all the rest). Payloads larger than $11 are left out with their size, so that the
-- answer is bounded; payloads.sql loads those that have room. What can be told from the rest of the row is not sent either. octet_length does not need those out of line.
--
-- Whether a row is blocked is a probe into the held_back index. It stands under an OR, which keeps it a probe: as a
-- join it could become a scan of all rows that are held back. OFFSET 0 keeps it from being evaluated twice. Where no row at
-- all is held back, one look at that index spares the probes, as long as the index is small: one that has held many rows
-- may be full of dead entries, through which such a look would go each time.
--
-- The place of a row (ctid) is for its settle. In a partition it says nothing without naming the partition, and is left out.
--
-- $1..$5 the scans: lane, after, until, due (0 skip, 1 up to, 2 all), up to. $6 what is in hand. $7 whether $8 and $9
-- (types and ids of keys) are the only ones wanted, or those unwanted. $10 most rows that are due, $11 the largest payload
-- to send, $12 most rows of a scan, $13 most rows of all scans.
WITH scan AS MATERIALIZED (
    SELECT * FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS s(lane, after, until, due, up_to, ord)
), held AS MATERIALIZED (
    SELECT coalesce(pg_relation_size(to_regclass({text:outbox_held_back})), 0) NOT BETWEEN 1 AND 65536 OR EXISTS (
        SELECT FROM {outbox} b WHERE b.next_attempt_at IS NOT NULL AND b.aggregate_id <> '') AS blocks
), due_seen AS MATERIALIZED (
    SELECT w.* FROM scan s
    CROSS JOIN LATERAL (
        (SELECT * FROM (
            SELECT t.* FROM {outbox} t
            WHERE t.lane = s.lane AND t.status = 0 AND t.next_attempt_at <= now()
              AND (s.due = 2 OR t.seq <= s.up_to OR t.aggregate_id = '')
            ORDER BY t.next_attempt_at LIMIT greatest($12, 1024)
         ) w
         WHERE {wanted:w}
         LIMIT $10)
        UNION ALL
        -- However many rows of one key come before the row that holds them back: that row is found.
        (SELECT w.* FROM (
            SELECT aggregate_type, aggregate_id FROM {outbox} t
            WHERE t.lane = s.lane AND t.status = 0 AND t.next_attempt_at <= now()
            ORDER BY t.next_attempt_at LIMIT 1
         ) f CROSS JOIN LATERAL (
            SELECT h.* FROM {outbox} h
            WHERE h.aggregate_type = f.aggregate_type AND h.aggregate_id = f.aggregate_id
              AND h.aggregate_id <> '' AND h.next_attempt_at IS NOT NULL
            ORDER BY h.seq LIMIT 1
         ) w
         WHERE f.aggregate_id <> '' AND w.status = 0 AND w.next_attempt_at <= now()
           AND (s.due = 2 OR w.seq <= s.up_to) AND {wanted:w})
    ) w
    WHERE s.due > 0
), due AS MATERIALIZED (
    SELECT DISTINCT ON (next_attempt_at, seq) * FROM due_seen ORDER BY next_attempt_at, seq LIMIT $10
)
SELECT 0::smallint AS kind, s.ord, NULL::bigint AS seq, NULL::uuid AS id, s.lane, NULL AS event_type,
       NULL AS aggregate_type, NULL AS aggregate_id, NULL::bytea AS payload, NULL::integer AS size, NULL AS content_type,
       NULL AS headers, NULL AS idempotency_key, NULL::integer AS attempts, NULL::timestamptz AS created_at,
       l.revision, NULL::tid AS place
FROM scan s LEFT JOIN {outbox_lane} l ON l.lane = s.lane
UNION ALL
SELECT 1::smallint, 0, seq, id, lane, event_type, aggregate_type, aggregate_id,
       CASE WHEN octet_length(payload) <= $11 THEN payload END, octet_length(payload), content_type, headers::text,
       idempotency_key, attempts, created_at, 0, NULL
FROM due
UNION ALL
(SELECT CASE WHEN r.wanted THEN 2::smallint ELSE 3::smallint END, s.ord, r.seq, CASE WHEN r.wanted THEN r.id END, NULL,
       CASE WHEN r.wanted THEN r.event_type END, CASE WHEN r.wanted THEN r.aggregate_type END,
       CASE WHEN r.wanted THEN r.aggregate_id END,
       CASE WHEN r.wanted AND octet_length(r.payload) <= $11 THEN r.payload END,
       CASE WHEN r.wanted AND octet_length(r.payload) > $11 THEN octet_length(r.payload) END,
       CASE WHEN r.wanted THEN r.content_type END, CASE WHEN r.wanted AND r.headers <> jsonb_object(ARRAY[]::text[]) THEN r.headers::text END,
       CASE WHEN r.wanted THEN r.idempotency_key END, CASE WHEN r.wanted AND r.attempts <> 0 THEN r.attempts END,
       CASE WHEN r.wanted THEN r.created_at END, NULL,
       CASE WHEN r.wanted THEN r.place END
FROM scan s
CROSS JOIN LATERAL (
    SELECT t.*, CASE WHEN t.tableoid = {text:outbox}::regclass THEN t.ctid END AS place, {wanted:t} AS wanted
    FROM {outbox} t
    WHERE t.lane = s.lane AND t.status = 0 AND t.next_attempt_at IS NULL AND t.seq > s.after AND t.seq <= s.until
    ORDER BY t.seq LIMIT $12
    OFFSET 0
) r
LIMIT $13)

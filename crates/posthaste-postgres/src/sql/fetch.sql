-- Reads the next records of some lanes: one statement, and so one snapshot and one round trip.
--
-- It walks the ready index lane by lane and streams what it finds: the LATERAL subquery has a LIMIT of its own, so the
-- only plan is a nested loop that pulls row by row, in order, and the outer LIMIT ends it. No window has an order of its
-- own that would need a sort, or needs more than the next row. Of what is passed over only the last row that was looked
-- at is returned, which says how far the scan came; the reader stops where its page is full. Payloads are carried along
-- as they are stored and left out where the page has had enough bytes; octet_length does not need those out of line.
--
-- Whether a row is blocked is a probe into the held_back index. It stands under an OR, which keeps it a probe: as a
-- join it could become a scan of all rows that are held back. OFFSET 0 keeps it from being evaluated twice.
--
-- $1..$5 the scans: lane, after, until, due (0 skip, 1 up to, 2 all), up to. $6 what is in hand. $7 whether $8 and $9
-- (types and ids of keys) are the only ones wanted, or those unwanted. $10 most rows, $11 most bytes, $12 most looked
-- at per scan, $13 most rows to return.
WITH scan AS MATERIALIZED (
    SELECT * FROM unnest($1, $2, $3, $4, $5) WITH ORDINALITY AS s(lane, after, until, due, up_to, ord)
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
         LIMIT greatest($10 / 2, 1))
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
), due_ranked AS (
    SELECT *, count(*) OVER w AS rank, coalesce(sum(octet_length(payload)) OVER w, 0) AS total
    FROM (SELECT DISTINCT ON (next_attempt_at, seq) * FROM due_seen ORDER BY next_attempt_at, seq) d
    WINDOW w AS (ORDER BY next_attempt_at, seq ROWS UNBOUNDED PRECEDING)
), due AS MATERIALIZED (
    SELECT * FROM due_ranked WHERE rank <= greatest($10 / 2, 1) AND (rank = 1 OR total <= $11)
)
SELECT 0::smallint AS kind, s.ord, NULL::bigint AS seq, false AS last, l.revision, false AS wanted, false AS withheld,
       NULL::uuid AS id, s.lane, NULL AS event_type, NULL AS aggregate_type, NULL AS aggregate_id, NULL::bytea AS payload,
       NULL AS content_type, NULL AS headers, NULL AS idempotency_key, 0 AS attempts, NULL::timestamptz AS created_at
FROM scan s LEFT JOIN {outbox_lane} l ON l.lane = s.lane
UNION ALL
SELECT 1::smallint, 0, seq, false, 0, true, false, id, lane, event_type, aggregate_type, aggregate_id, payload,
       content_type, headers::text, idempotency_key, attempts, created_at
FROM due
UNION ALL
(SELECT 2::smallint, ord, seq, last, 0, wanted, total > $11 AND rank > 1, id, lane, event_type, aggregate_type,
       aggregate_id, CASE WHEN total <= $11 OR rank = 1 THEN payload END, content_type, headers::text, idempotency_key,
       attempts, created_at
FROM (
    SELECT s.ord, r.*, count(*) FILTER (WHERE r.wanted) OVER w AS rank,
           coalesce(sum(octet_length(r.payload)) FILTER (WHERE r.wanted) OVER w, 0) AS total
    FROM scan s
    CROSS JOIN LATERAL (
        SELECT * FROM (
            SELECT l.*, {wanted:l} AS wanted
            FROM (
                SELECT t.*, row_number() OVER w AS place, lead(t.seq) OVER w IS NULL AS last
                FROM (
                    SELECT seq, id, lane, event_type, aggregate_type, aggregate_id, payload, content_type, headers,
                           idempotency_key, attempts, created_at
                    FROM {outbox} t
                    WHERE t.lane = s.lane AND t.status = 0 AND t.next_attempt_at IS NULL
                      AND t.seq > s.after AND t.seq <= s.until
                    ORDER BY t.seq LIMIT $12 + 1
                ) t
                WINDOW w AS (ORDER BY t.seq)
            ) l
            WHERE l.place <= $12
            OFFSET 0
        ) l
        WHERE l.wanted OR l.last OR l.place = $12
        LIMIT $13
    ) r
    WINDOW w AS (ROWS UNBOUNDED PRECEDING)
) r
LIMIT $13)

-- The figures. At most $1 rows of each state are looked at (NULL: all), so that the cost does not grow with the table.
WITH ready AS MATERIALIZED (
    SELECT r.aggregate_id <> '' AND EXISTS (
        SELECT FROM {outbox} b WHERE b.aggregate_type = r.aggregate_type AND b.aggregate_id = r.aggregate_id
           AND b.aggregate_id <> '' AND b.next_attempt_at IS NOT NULL AND b.seq < r.seq) AS blocked
    FROM (SELECT seq, aggregate_type, aggregate_id FROM {outbox}
          WHERE status = 0 AND next_attempt_at IS NULL LIMIT $1) r
), held AS MATERIALIZED (
    SELECT h.next_attempt_at <= now() AS due, h.aggregate_id <> '' AND EXISTS (
        SELECT FROM {outbox} b WHERE b.aggregate_type = h.aggregate_type AND b.aggregate_id = h.aggregate_id
           AND b.aggregate_id <> '' AND b.next_attempt_at IS NOT NULL AND b.seq < h.seq) AS blocked
    FROM (SELECT seq, aggregate_type, aggregate_id, next_attempt_at FROM {outbox}
          WHERE status = 0 AND next_attempt_at IS NOT NULL LIMIT $1) h
)
SELECT (SELECT count(*) FROM ready) AS ready_looked_at,
       (SELECT count(*) FROM ready WHERE blocked) AS ready_blocked,
       (SELECT count(*) FROM held) AS held_looked_at,
       (SELECT count(*) FROM held WHERE blocked) AS held_blocked,
       (SELECT count(*) FROM held WHERE due AND NOT blocked) AS due,
       (SELECT count(*) FROM (SELECT FROM {outbox} WHERE status = -1 LIMIT $1) d) AS dead,
       (SELECT count(*) FROM {outbox_lane} WHERE lane >= 0) AS lanes,
       (SELECT count(*) FROM {outbox_lane} l JOIN {outbox_relay} r ON r.id = l.owner
        WHERE l.lane >= 0 AND r.leased_until > now()) AS leased,
       (extract(epoch FROM now() - least(
           (SELECT min(o.created_at) FROM {outbox_lane} l CROSS JOIN LATERAL (
               SELECT r.created_at FROM (
                   SELECT * FROM {outbox} t WHERE t.lane = l.lane AND t.status = 0 AND t.next_attempt_at IS NULL
                   ORDER BY t.seq LIMIT $1) r
               WHERE r.aggregate_id = '' OR NOT EXISTS (
                   SELECT FROM {outbox} b WHERE b.aggregate_type = r.aggregate_type AND b.aggregate_id = r.aggregate_id
                      AND b.aggregate_id <> '' AND b.next_attempt_at IS NOT NULL AND b.seq < r.seq)
               LIMIT 1) o WHERE l.lane >= 0),
           (SELECT min(o.next_attempt_at) FROM {outbox_lane} l CROSS JOIN LATERAL (
               SELECT r.next_attempt_at FROM (
                   SELECT * FROM {outbox} t WHERE t.lane = l.lane AND t.status = 0 AND t.next_attempt_at <= now()
                   ORDER BY t.next_attempt_at LIMIT $1) r
               WHERE r.aggregate_id = '' OR NOT EXISTS (
                   SELECT FROM {outbox} b WHERE b.aggregate_type = r.aggregate_type AND b.aggregate_id = r.aggregate_id
                      AND b.aggregate_id <> '' AND b.next_attempt_at IS NOT NULL AND b.seq < r.seq)
               LIMIT 1) o WHERE l.lane >= 0)
       )) * 1000000)::bigint AS oldest_age

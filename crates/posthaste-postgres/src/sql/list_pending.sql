-- A page of pending messages, oldest first. What is ready comes from each lane's index, a page from each; what is held
-- back has no index by its place and is sorted.
SELECT {info:t} FROM (
    SELECT r.* FROM {outbox_lane} l CROSS JOIN LATERAL (
        SELECT * FROM {outbox} r WHERE r.lane = l.lane AND r.status = 0 AND r.next_attempt_at IS NULL AND r.seq > $1
        ORDER BY r.seq LIMIT $2
    ) r WHERE l.lane >= 0
    UNION ALL
    (SELECT * FROM {outbox} h WHERE h.status = 0 AND h.next_attempt_at IS NOT NULL AND h.seq > $1 ORDER BY h.seq LIMIT $2)
) t ORDER BY t.seq LIMIT $2

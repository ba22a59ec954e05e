-- The rows that were held back and are due. In place of one that another holds back comes that other: however many rows of a
-- key are due before the one that holds them back, that one is found. With each comes how many were looked at for it.
SELECT d.looked_at, CAST(UNIX_TIMESTAMP(t.created_at) * 1000000 AS SIGNED) AS created, t.id, {record:t}, NULL AS blocker
FROM (SELECT e.id, COUNT(*) AS looked_at
      FROM (SELECT COALESCE({blocker:w}, w.id) AS id
            FROM (:arms) a
            STRAIGHT_JOIN {outbox} w FORCE INDEX (PRIMARY) ON w.id = a.id AND w.created_ts = a.created_ts) e
      GROUP BY e.id) d
STRAIGHT_JOIN {outbox} t FORCE INDEX (PRIMARY) ON t.id = d.id

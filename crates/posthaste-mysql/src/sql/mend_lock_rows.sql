-- Locks the rows of a page that are still dead.
SELECT t.id, t.lane, t.parked AND OCTET_LENGTH(t.aggregate_id) > 0 AS parks
FROM {outbox} t FORCE INDEX (PRIMARY) WHERE (t.id, t.created_ts) IN (:rows) AND t.status = -1 AND :condition
ORDER BY t.id FOR UPDATE

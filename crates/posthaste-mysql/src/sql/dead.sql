-- A page of dead rows in the order of their ids.
SELECT t.id, t.lane, t.event_type, t.parked AND OCTET_LENGTH(t.aggregate_id) > 0 AS parks
FROM {outbox} t FORCE INDEX (idx_status_id)
WHERE t.status = -1 AND t.id > :after AND :condition
ORDER BY t.id LIMIT :most

-- What a read takes of the row t. Payloads that are not wanted or large are left out: those that are wanted after all are asked
-- for by payloads.sql.
t.status, t.lane, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', t.next_attempt_at) AS since,
COALESCE(t.next_attempt_at <= NOW(6), FALSE) AS due,
t.event_type, t.aggregate_type, t.aggregate_id, t.content_type, t.headers, t.idempotency_key, t.attempt_count,
t.tombstone OR t.payload IS NULL AS tombstone, OCTET_LENGTH(t.payload) AS bytes,
IF(OCTET_LENGTH(t.payload) <= :largest AND (:wanted), t.payload, NULL) AS payload

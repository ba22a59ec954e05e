-- One message, whole.
SELECT {info:t}, t.lane, t.content_type, t.headers, t.idempotency_key, t.tombstone OR t.payload IS NULL AS tombstone, t.payload
FROM {outbox} t FORCE INDEX (PRIMARY) WHERE t.id = :id AND t.created_ts = :created_ts

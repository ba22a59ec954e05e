-- One message, whole.
SELECT {info:t}, t.lane, t.content_type, t.headers::text AS headers, t.idempotency_key, t.payload
FROM {outbox} t WHERE t.id = $1

-- Rows by primary key, with what blocks them. Payloads that are not wanted or large are left out: those that are
-- wanted after all are asked for by payloads.sql.
SELECT t.id, t.status, t.lane, CAST(UNIX_TIMESTAMP(t.created_at) * 1000000 AS SIGNED) AS created,
       TIMESTAMPDIFF(MICROSECOND, '1970-01-01', t.next_attempt_at) AS since,
       COALESCE(t.next_attempt_at <= NOW(6), FALSE) AS due,
       t.event_type, t.aggregate_type, t.aggregate_id, t.content_type, t.headers, t.idempotency_key, t.attempt_count,
       t.tombstone OR t.payload IS NULL AS tombstone, OCTET_LENGTH(t.payload) AS bytes,
       {blocker:t} AS blocker,
       IF(OCTET_LENGTH(t.payload) <= :most AND (:wanted), t.payload, NULL) AS payload
FROM {outbox} t FORCE INDEX (PRIMARY) WHERE t.id IN (:ids) AND t.created_ts BETWEEN :from AND :until

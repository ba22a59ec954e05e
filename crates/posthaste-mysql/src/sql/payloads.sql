-- The payloads that rows.sql left out.
SELECT t.id, t.payload FROM {outbox} t FORCE INDEX (PRIMARY) WHERE t.id IN (:ids) AND t.created_ts BETWEEN :from AND :until

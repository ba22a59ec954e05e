-- Deletes what purge_look.sql found, if it is still so.
DELETE o FROM {outbox} o FORCE INDEX (PRIMARY)
WHERE (o.id, o.created_ts) IN (:rows) AND o.status = :status
  AND COALESCE(o.processed_at, o.updated_at) < NOW(6) - INTERVAL :age MICROSECOND

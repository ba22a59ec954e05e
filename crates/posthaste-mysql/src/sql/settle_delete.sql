-- Deletes processed records, as settle_processed.sql marks them. The form for several tables takes an index hint.
DELETE o FROM {outbox} o FORCE INDEX (PRIMARY)
WHERE (o.id, o.created_ts) IN (:rows) AND o.status = 0

-- Deletes dead rows. They are locked.
DELETE o FROM {outbox} o FORCE INDEX (PRIMARY) WHERE (o.id, o.created_ts) IN (:rows) AND o.status = -1

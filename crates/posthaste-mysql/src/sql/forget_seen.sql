-- Deletes entries of the inbox by primary key.
DELETE i FROM {outbox_inbox} i FORCE INDEX (PRIMARY)
WHERE (i.consumer, i.message_id) IN (:entries) AND i.seen_at < NOW(6) - INTERVAL :age MICROSECOND

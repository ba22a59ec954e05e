-- Old entries of the inbox, oldest first. Locks nothing: they are deleted by primary key.
SELECT consumer, message_id FROM {outbox_inbox} WHERE seen_at < NOW(6) - INTERVAL :age MICROSECOND ORDER BY seen_at LIMIT :most

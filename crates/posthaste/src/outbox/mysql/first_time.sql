-- Notes that a consumer has seen a message; that it was noted before is told by the error number of a duplicate.
INSERT INTO {outbox_inbox} (consumer, message_id) VALUES (?, ?)

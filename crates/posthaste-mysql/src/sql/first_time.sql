-- Notes that a consumer has seen a message. Seen before is an error, of this statement only. If another open transaction
-- notes the same, this one waits to see what becomes of it.
INSERT INTO {outbox_inbox} (consumer, message_id) VALUES (:consumer, :message)

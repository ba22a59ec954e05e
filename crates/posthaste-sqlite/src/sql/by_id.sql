-- Where a message stands.
SELECT seq, status FROM main.{outbox} INDEXED BY {outbox_id} WHERE id = ?1

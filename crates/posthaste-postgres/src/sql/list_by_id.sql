-- A page of messages of one status ($3), or of any, along the primary key: ids of version 7 rise with time.
SELECT {info:t} FROM {outbox} t WHERE t.id > $1 AND ($3 IS NULL OR t.status = $3) ORDER BY t.id LIMIT $2

-- A page of dead messages, oldest first, along the index of the dead.
SELECT {info:t} FROM {outbox} t WHERE t.status = -1 AND t.seq > $1 ORDER BY t.seq LIMIT $2

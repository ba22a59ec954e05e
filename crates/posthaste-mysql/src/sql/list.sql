-- A page of messages in the order of their ids: along the primary key, or of one status along its index.
SELECT {info:t}
FROM {outbox} t FORCE INDEX (:index) WHERE :condition AND t.id > :after ORDER BY t.id LIMIT :most

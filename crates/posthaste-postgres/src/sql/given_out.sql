-- Up to where numbers were given out: the last value of the outbox's sequence, with SELECT on it, or else NULL.
SELECT CASE WHEN has_sequence_privilege(s.name, 'SELECT') THEN pg_sequence_last_value(s.name::regclass) END AS given_out
FROM (SELECT pg_get_serial_sequence($1, 'seq') AS name) s

-- One message. Its delay and the time before which it is not due (since 1970) are in microseconds, 0 for none.
(?, ?, ?, ?, ?, ?, ?, ?,
 UTC_TIMESTAMP(6) + INTERVAL NULLIF(GREATEST(?, ? - CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)), 0) MICROSECOND,
 ?)

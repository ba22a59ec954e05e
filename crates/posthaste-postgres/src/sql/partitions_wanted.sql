-- The stretches of time ($1 day or month, in UTC) from the last one until so many microseconds ahead ($2), with the
-- ids of version 7 at which each begins and ends: the milliseconds in the first 48 bits, and nothing behind them.
SELECT to_char(p, CASE $1 WHEN 'day' THEN 'YYYYMMDD' ELSE 'YYYYMM' END) AS name,
       encode(substring(int8send((extract(epoch FROM p AT TIME ZONE 'UTC') * 1000)::bigint) FROM 3) || '\x00000000000000000000'::bytea, 'hex')::uuid AS lower,
       encode(substring(int8send((extract(epoch FROM (p + ('1 ' || $1)::interval) AT TIME ZONE 'UTC') * 1000)::bigint) FROM 3) || '\x00000000000000000000'::bytea, 'hex')::uuid AS upper
FROM generate_series(date_trunc($1, now() AT TIME ZONE 'UTC') - ('1 ' || $1)::interval,
                     (now() + $2 * interval '1 microsecond') AT TIME ZONE 'UTC', ('1 ' || $1)::interval) p

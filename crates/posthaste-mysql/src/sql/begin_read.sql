-- All that a read looks at is seen in one snapshot. It takes no lock, and ends with the read.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ;
START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY

-- Which lanes the relay seems to hold. Locks nothing: the next statement locks these by the primary key, in order, so that
-- no scan ever waits for the lanes of others.
SELECT lane FROM {outbox_lane} WHERE owner = :relay AND lane >= 0

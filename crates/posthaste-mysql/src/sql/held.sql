-- Which of these lanes are the relay's, under which tokens. Locks nothing.
SELECT lane, token FROM {outbox_lane} FORCE INDEX (PRIMARY) WHERE lane IN (:lanes) AND owner = :relay

-- Whether the lane is still the relay's, under this token. Whether its time is over does not matter: as long as
-- nobody took the lane, nobody else published from it.
SELECT 1 FROM main.{outbox_lane} WHERE lane = ?1 AND owner = ?2 AND token = ?3

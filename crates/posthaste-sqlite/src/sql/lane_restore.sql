-- Puts back a lane that somebody deleted. Its token starts at the time, so that no token is used a second time.
INSERT INTO main.{outbox_lane} (lane, token) VALUES (?1, ?2) ON CONFLICT DO NOTHING

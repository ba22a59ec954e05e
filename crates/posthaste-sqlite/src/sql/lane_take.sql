-- Changes the owner of the lane, and with it the token. The write lock keeps others out between looking and taking.
UPDATE main.{outbox_lane} SET owner = ?1, token = token + 1 WHERE lane = 0

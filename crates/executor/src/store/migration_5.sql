-- What runs is few among what waits: a listing of it walks over nothing else.
CREATE INDEX running ON requests(id) WHERE status = 1;

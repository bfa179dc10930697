-- The children of unfinished requests, by which a later run of the parent finds them. `digest` tells their arguments apart.
CREATE TABLE children(
    id INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    call INTEGER NOT NULL,          -- which submission of the parent
    name TEXT NOT NULL,
    digest INTEGER NOT NULL
);
CREATE INDEX children_of ON children(parent);

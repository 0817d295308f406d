-- How much each submitter used the pool: worker seconds that fade with a half-life of a day, as they were at `at`.

CREATE TABLE usage (submitter TEXT PRIMARY KEY, seconds REAL NOT NULL, at REAL NOT NULL) WITHOUT ROWID;

-- The pool's database, version 1. Columns are what SQL asks by; `body` and `progress` hold the rest of a row as msgpack.
-- Those of jobs and tasks carry keys of blobs and are sealed. `body` is written once, `progress` with every change.

CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;

CREATE TABLE job (
    id TEXT PRIMARY KEY,
    submitter TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    body BLOB NOT NULL,
    progress BLOB NOT NULL
);
CREATE INDEX job_alive ON job (id) WHERE state IN ('queued', 'running');
CREATE INDEX job_of_submitter ON job (submitter, id);
CREATE UNIQUE INDEX job_under_key ON job (submitter, idempotency_key) WHERE idempotency_key <> '';

CREATE TABLE task (
    id TEXT PRIMARY KEY,
    job TEXT NOT NULL,
    number INTEGER NOT NULL,
    body BLOB NOT NULL,
    progress BLOB NOT NULL
);
CREATE UNIQUE INDEX task_of_job ON task (job, number);

CREATE TABLE ledger (
    writer TEXT NOT NULL,
    row INTEGER NOT NULL,
    hash BLOB NOT NULL,
    previous BLOB NOT NULL,
    batch INTEGER NOT NULL,
    position INTEGER NOT NULL,
    job TEXT NOT NULL,
    task TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    worker TEXT NOT NULL,
    statement BLOB NOT NULL
);
CREATE UNIQUE INDEX ledger_chain ON ledger (writer, row);
CREATE INDEX ledger_of_job ON ledger (job);

CREATE TABLE batch (
    writer TEXT NOT NULL,
    number INTEGER NOT NULL,
    worker TEXT NOT NULL,
    digests BLOB NOT NULL,  -- 32 bytes each, in the order that was signed
    signature BLOB NOT NULL
);
CREATE UNIQUE INDEX batch_number ON batch (writer, number);

CREATE TABLE checkpoint (
    writer TEXT NOT NULL,
    row INTEGER NOT NULL,
    hash BLOB NOT NULL,
    at REAL NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (writer, row)
) WITHOUT ROWID;

-- The events of one commit in one row: `newest` and `oldest` are sequence numbers.
CREATE TABLE event (newest INTEGER PRIMARY KEY, oldest INTEGER NOT NULL, at REAL NOT NULL, body BLOB NOT NULL);

CREATE TABLE worker (id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE invite (id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE token (id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE setting (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE blob (digest TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE owner (
    digest TEXT NOT NULL, principal TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (digest, principal)
) WITHOUT ROWID;
CREATE TABLE reference (
    digest TEXT NOT NULL, job TEXT NOT NULL, submitter TEXT NOT NULL, PRIMARY KEY (digest, job)
) WITHOUT ROWID;
